package access

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access/authority"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// This file decides which machines join, and what their certificates say. The
// holder of the authority signs them.

// Machines are the machines of an installation, and the tokens with which others join: a part of [State], with its
// rules.
type Machines struct {
	joins    rows[*apiv1.JoinTokenRow] // by id
	machines rows[*apiv1.MachineRow]   // by id
}

const (
	maxJoinTokens  = 1000
	maxMachines    = 20_000
	maxUses        = 10_000
	defaultJoinTTL = time.Hour
	longestJoinTTL = 7 * 24 * time.Hour
	shortestJoin   = time.Second
	joinPrefix     = "wwj_"
)

// NewJoinToken returns the text of a join token: 160 random bits, and the pin of the authority, by which a
// machine knows the server that it joins.
func NewJoinToken(random io.Reader, pin authority.Pin) (string, error) {
	b := make([]byte, tokenBytes, tokenBytes+len(pin))
	if _, err := io.ReadFull(random, b); err != nil {
		return "", fmt.Errorf("make a join token: %w", err)
	}
	body := tokenText.EncodeToString(append(b, pin[:]...))
	return joinPrefix + body + checksum(body), nil
}

// ParseJoinToken returns the pin in a join token, or an error that names the fault in its form.
func ParseJoinToken(text string) (pin authority.Pin, err error) {
	rest, ok := strings.CutPrefix(text, joinPrefix)
	size := tokenText.EncodedLen(tokenBytes + len(pin))
	switch {
	case !ok:
		return pin, fmt.Errorf("a join token begins with %s: make one with `wheelwork join-token create`", joinPrefix)
	case len(rest) != size+tokenText.EncodedLen(crc32.Size):
		return pin, fmt.Errorf("the join token has %d characters, want %d: it was copied in part", len(text), len(joinPrefix)+size+tokenText.EncodedLen(crc32.Size))
	case checksum(rest[:size]) != rest[size:]:
		return pin, errors.New("the checksum of the join token is wrong: a character was changed")
	}
	b, err := tokenText.DecodeString(rest[:size])
	if err != nil {
		return pin, errors.New("the join token has characters that it cannot have")
	}
	return authority.Pin(b[tokenBytes:]), nil
}

// CreateJoinToken returns the changes that make a join token of an authority, and the token with its text.
func (s *Machines) CreateJoinToken(by By, q *apiv1.CreateJoinTokenRequest, pin authority.Pin) ([]Change, *apiv1.JoinToken, error) {
	ttl := defaultJoinTTL
	if q.Ttl != "" {
		var err error
		if ttl, err = readTime("ttl", q.Ttl, shortestJoin, longestJoinTTL); err != nil {
			return nil, nil, err
		}
	}
	like := authority.Machine{Kind: q.Kind, ID: "any", Apps: q.Apps, Labels: q.Labels, Executors: q.Executors}
	if err := like.Check(); err != nil {
		return nil, nil, invalid("%v", err)
	}
	for _, app := range q.Apps {
		if err := naming.Check("app", app); err != nil {
			return nil, nil, invalid("%v", err)
		}
	}
	if q.Uses < 0 || q.Uses > maxUses {
		return nil, nil, invalid("uses is %d, want 1 to %d machines", q.Uses, maxUses)
	}
	changes := s.endedJoins(by.Now)
	if len(s.joins)-len(changes) >= maxJoinTokens {
		return nil, nil, full("join tokens", maxJoinTokens)
	}
	text, err := NewJoinToken(by.Random, pin)
	if err != nil {
		return nil, nil, err
	}
	digest := Digest(text)
	row := &apiv1.JoinTokenRow{
		Id: "join-" + tokenText.EncodeToString(digest[:idBytes]), Digest: digest[:], Kind: q.Kind, Apps: sorted(q.Apps), Labels: q.Labels, Executors: sorted(q.Executors),
		UsesLeft: max(q.Uses, 1), ExpiresMs: by.Now.Add(ttl).UnixMilli(), CreatedMs: by.Now.UnixMilli(), CreatedBy: by.Principal.Author(),
	}
	m := joinMessage(row)
	m.Token = text
	return append(changes, putJoin(row)), m, nil
}

func sorted(all []string) []string { return slices.Compact(slices.Sorted(slices.Values(all))) }

func putJoin(row *apiv1.JoinTokenRow) Change {
	return Change{Put: &apiv1.AccessPut{Kind: &apiv1.AccessPut_Join{Join: row}}}
}

func putMachine(row *apiv1.MachineRow) Change {
	return Change{Put: &apiv1.AccessPut{Kind: &apiv1.AccessPut_Machine{Machine: row}}}
}

func removeRow(kind, id string) Change {
	return Change{Delete: &apiv1.AccessDelete{Kind: kind, Id: id}}
}

// endedJoins returns the changes that remove the join tokens that have ended.
func (s *Machines) endedJoins(now time.Time) (all []Change) {
	for _, row := range s.joins {
		if row.ExpiresMs <= now.UnixMilli() {
			all = append(all, removeRow(joinRow, row.Id))
		}
	}
	return all
}

func joinMessage(row *apiv1.JoinTokenRow) *apiv1.JoinToken {
	return &apiv1.JoinToken{
		Id: row.Id, Kind: row.Kind, Apps: row.Apps, Labels: row.Labels, Executors: row.Executors, UsesLeft: row.UsesLeft,
		ExpiresAt: stamp(row.ExpiresMs), CreatedAt: stamp(row.CreatedMs), CreatedBy: row.CreatedBy,
	}
}

// JoinTokens returns the join tokens that have not ended, by the time of their creation.
func (s *Machines) JoinTokens(now time.Time) (all []*apiv1.JoinToken) {
	for _, row := range s.joins {
		if row.ExpiresMs > now.UnixMilli() {
			all = append(all, joinMessage(row))
		}
	}
	slices.SortFunc(all, func(a, b *apiv1.JoinToken) int {
		return cmp.Or(a.CreatedAt.AsTime().Compare(b.CreatedAt.AsTime()), cmp.Compare(a.Id, b.Id))
	})
	return all
}

// RevokeJoinToken returns the change that removes a join token.
func (s *Machines) RevokeJoinToken(id string) ([]Change, error) {
	if s.joins[id] == nil {
		return nil, status.Errorf(codes.NotFound, "there is no join token %.80q", id)
	}
	return []Change{removeRow(joinRow, id)}, nil
}

// errJoin is the answer to a join token that is not accepted, whatever the reason: a caller without one must
// not learn which tokens exist.
var errJoin = status.Error(codes.Unauthenticated, "the join token was refused: it is not one of this installation, it was used or revoked, or it has expired; make another one with `wheelwork join-token create`")

// Join returns the changes by which a machine with a join token becomes one of the installation, and what its
// certificate says. key is the digest of its key, and life how long the certificate is valid.
func (s *Machines) Join(q *apiv1.JoinRequest, key [sha256.Size]byte, address string, now time.Time, life time.Duration) ([]Change, authority.Machine, error) {
	digest := Digest(q.Token)
	var token *apiv1.JoinTokenRow
	for _, row := range s.joins {
		if subtle.ConstantTimeCompare(row.Digest, digest[:]) == 1 {
			token = row
		}
	}
	had := s.machines[q.Id]
	repeated := had != nil && bytes.Equal(had.Digest, key[:]) && token != nil && had.JoinToken == token.Id
	if token == nil || token.ExpiresMs <= now.UnixMilli() || token.UsesLeft <= 0 && !repeated {
		return nil, authority.Machine{}, errJoin
	}
	if q.Kind != "" && q.Kind != token.Kind {
		return nil, authority.Machine{}, status.Errorf(codes.FailedPrecondition, "the join token is for a %s, and this is a %.40s: make one with `wheelwork join-token create --kind %[2]s`", token.Kind, q.Kind)
	}
	row := &apiv1.MachineRow{
		Id: q.Id, Kind: token.Kind, Name: cmp.Or(q.Name, q.Id), Digest: key[:], Apps: token.Apps, Labels: token.Labels, Executors: token.Executors,
		JoinedMs: now.UnixMilli(), RenewedMs: now.UnixMilli(), ExpiresMs: now.Add(life).UnixMilli(), JoinToken: token.Id, Address: address,
	}
	m := machineOf(row)
	if err := errors.Join(m.Check(), checkTitle(row.Name)); err != nil {
		return nil, m, invalid("%v", err)
	}
	switch {
	case repeated:
		return []Change{putMachine(row)}, m, nil
	case had != nil && had.RevokedMs == 0 && !bytes.Equal(had.Digest, key[:]) && had.ExpiresMs > now.UnixMilli():
		return nil, m, status.Errorf(codes.AlreadyExists, "there is a %s %s with a certificate that is valid until %s: if it is this machine, and its key is lost, revoke the certificate first (wheelwork %[1]s revoke %[2]s)", had.Kind, had.Id, time.UnixMilli(had.ExpiresMs).UTC().Format(time.RFC3339))
	case had == nil && len(s.machines) >= maxMachines:
		return nil, m, full("machines", maxMachines)
	}
	for _, other := range s.machines {
		if bytes.Equal(other.Digest, key[:]) && other.Id != q.Id {
			return nil, m, status.Errorf(codes.AlreadyExists, "the %s %s has the same key: each machine needs one of its own", other.Kind, other.Id)
		}
	}
	left := proto.CloneOf(token)
	left.UsesLeft--
	return []Change{putJoin(left), putMachine(row)}, m, nil
}

// checkTitle returns an error if a name for people is too long, or has characters that are not printed.
func checkTitle(name string) error {
	if len(name) > 100 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }) {
		return fmt.Errorf("the name %.100q has more than 100 bytes, or characters that cannot be printed", name)
	}
	return nil
}

func machineOf(row *apiv1.MachineRow) authority.Machine {
	return authority.Machine{Kind: row.Kind, ID: row.Id, Apps: row.Apps, Labels: row.Labels, Executors: row.Executors}
}

// Renew returns the changes by which the certificate of a machine is prolonged, and what the new one says. The
// caller has verified that the authority has signed the former certificate, which ended at a time, and that
// its key signed the request. life is how long the new one is valid.
func (s *Machines) Renew(id string, key [sha256.Size]byte, ended, now time.Time, life time.Duration) ([]Change, authority.Machine, error) {
	row := s.machines[id]
	switch {
	case row == nil || row.RevokedMs > 0 || !bytes.Equal(row.Digest, key[:]):
		return nil, authority.Machine{}, status.Errorf(codes.Unauthenticated, "the certificate of %.100s was revoked, or replaced: join again with `--join-token`", id)
	case now.After(ended.Add(authority.Late)):
		return nil, authority.Machine{}, status.Errorf(codes.Unauthenticated, "the certificate of %.100s ended at %s, too long ago to be renewed: join again with `--join-token`", id, ended.UTC().Format(time.RFC3339))
	}
	next := proto.CloneOf(row)
	next.RenewedMs, next.ExpiresMs = now.UnixMilli(), now.Add(life).UnixMilli()
	return []Change{putMachine(next)}, machineOf(next), nil
}

// Enroll returns the changes by which a server is known by a certificate of its own, which ends at a time. by is the
// caller, and key the digest of the key in the certificate.
func (s *Machines) Enroll(by *Principal, m authority.Machine, name string, key [sha256.Size]byte, ends, now time.Time) ([]Change, error) {
	row := &apiv1.MachineRow{Id: m.ID, Kind: m.Kind, Name: cmp.Or(name, m.ID), Digest: key[:], JoinedMs: now.UnixMilli()}
	had := s.machines[m.ID]
	switch {
	case m.Kind != authority.Server:
		return nil, invalid("the certificate is one of the %s %s, and only servers enroll themselves", m.Kind, m.ID)
	case by != nil && by.Machine != nil && by.Machine.ID != m.ID:
		return nil, status.Errorf(codes.PermissionDenied, "%s cannot enroll %s: a server enrolls itself", by.Machine.ID, m.ID)
	case had != nil && had.RevokedMs > 0:
		return nil, status.Errorf(codes.PermissionDenied, "the server %s was revoked at %s", m.ID, stamp(had.RevokedMs).AsTime().Format(time.RFC3339))
	case had != nil && had.Kind == m.Kind:
		row = proto.CloneOf(had)
		row.Digest = key[:]
	case len(s.machines) >= maxMachines:
		return nil, full("machines", maxMachines)
	}
	if err := checkTitle(row.Name); err != nil {
		return nil, invalid("%v", err)
	}
	row.RenewedMs, row.ExpiresMs = now.UnixMilli(), ends.UnixMilli()
	return []Change{putMachine(row)}, nil
}

// Certificates returns the machines by id.
func (s *Machines) Certificates() (all []*apiv1.Certificate) {
	for _, id := range slices.Sorted(maps.Keys(s.machines)) {
		all = append(all, certificateMessage(s.machines[id]))
	}
	return all
}

func certificateMessage(row *apiv1.MachineRow) *apiv1.Certificate {
	return &apiv1.Certificate{
		Id: row.Id, Kind: row.Kind, Name: row.Name, Apps: row.Apps, Labels: row.Labels, Executors: row.Executors,
		JoinedAt: stamp(row.JoinedMs), RenewedAt: stamp(row.RenewedMs), ExpiresAt: stamp(row.ExpiresMs), JoinToken: row.JoinToken, Address: row.Address,
		RevokedAt: stamp(row.RevokedMs),
	}
}

// RevokeCertificate returns the changes that remove a host, or mark a server as revoked, and the join token that it
// knows: otherwise the machine could join with it again, under another id.
func (s *Machines) RevokeCertificate(q *apiv1.RevokeCertificateRequest, now time.Time) ([]Change, error) {
	row, err := s.machine(q.Id, q.Kind)
	if err != nil {
		return nil, err
	}
	changes := []Change{removeRow(machineRow, row.Id)}
	if row.Kind == authority.Server {
		if !s.hasServers(row.Id, now) {
			return nil, status.Errorf(codes.FailedPrecondition, "%s is the only server of the installation: it cannot be revoked", row.Id)
		}
		revoked := proto.CloneOf(row)
		revoked.RevokedMs = now.UnixMilli()
		changes = []Change{putMachine(revoked)}
	}
	if s.joins[row.JoinToken] != nil {
		changes = append(changes, removeRow(joinRow, row.JoinToken))
	}
	return changes, nil
}

// hasServers reports whether there is another server than the one with an id.
func (s *Machines) hasServers(id string, now time.Time) bool {
	for _, row := range s.machines {
		if row.Kind == authority.Server && row.Id != id && row.RevokedMs == 0 && row.ExpiresMs > now.UnixMilli() {
			return true
		}
	}
	return false
}

// machine returns the machine with an id, or with a name that no other one has.
func (s *Machines) machine(id, kind string) (*apiv1.MachineRow, error) {
	found := s.machines[id]
	if found == nil {
		for _, row := range s.machines {
			switch {
			case row.Name != id:
			case found != nil:
				return nil, status.Errorf(codes.FailedPrecondition, "%.100s is the name of several machines: give the id, which `wheelwork certificate list` shows", id)
			default:
				found = row
			}
		}
	}
	switch {
	case found == nil:
		return nil, status.Errorf(codes.NotFound, "no machine with a certificate is called %.100q: `wheelwork certificate list` shows them", id)
	case kind != "" && found.Kind != kind:
		return nil, status.Errorf(codes.FailedPrecondition, "%s is a %s, and no %.40s", found.Id, found.Kind, kind)
	}
	return found, nil
}

// RenameMachine returns the change that gives a machine another name.
func (s *Machines) RenameMachine(id, name string) ([]Change, *apiv1.Certificate, error) {
	row, err := s.machine(id, "")
	if err != nil {
		return nil, nil, err
	}
	if err := checkTitle(name); err != nil || name == "" {
		return nil, nil, invalid("%v", cmp.Or(err, errors.New("the name is empty")))
	}
	next := proto.CloneOf(row)
	next.Name = name
	return []Change{putMachine(next)}, certificateMessage(next), nil
}

// machineCredential returns the key of a machine as a guard accepts it.
func machineCredential(row *apiv1.MachineRow) Credential {
	m := machineOf(row)
	p := &Principal{Name: row.Id, Kind: KindHost, Process: Host, Machine: &m, called: row.Name}
	c := Credential{Digest: [sha256.Size]byte(row.Digest), Until: time.UnixMilli(row.ExpiresMs), Of: p}
	if row.Kind == authority.Server {
		p.Kind, p.Process = KindServer, Server
		c.Until = time.Time{} // it signs its own certificates, and tells of them afterwards
	}
	if row.RevokedMs > 0 {
		c.Invalid = "the server was revoked"
	}
	return c
}
