package access

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// State has the principals, tokens and machines of an installation: it is the fold of the records AccessPut
// and AccessDelete. It reads no clock. It is not safe for concurrent use; the rows in it do not
// change.
type State struct {
	principals rows[*apiv1.PrincipalRow] // by name
	tokens     rows[*apiv1.TokenRow]     // by id
	sessions   rows[*apiv1.SessionRow]   // by id
	uses       rows[*apiv1.TokenUseRow]  // by the id of the token
	logins     rows[*apiv1.LoginRow]     // by code; those that were approved
	Anchors    Anchors
	Machines   Machines
}

// NewState returns a state without principals.
func NewState() *State {
	return &State{
		rows[*apiv1.PrincipalRow]{},
		rows[*apiv1.TokenRow]{},
		rows[*apiv1.SessionRow]{},
		rows[*apiv1.TokenUseRow]{},
		rows[*apiv1.LoginRow]{},
		Anchors{rows[*apiv1.AuditAnchorRow]{}},
		Machines{rows[*apiv1.JoinTokenRow]{}, rows[*apiv1.MachineRow]{}},
	}
}

// rows are the rows of one kind by id.
type rows[T proto.Message] map[string]T

// set puts a row; nil removes it.
func (r rows[T]) set(id string, row proto.Message) {
	if row == nil {
		delete(r, id)
		return
	}
	r[id] = row.(T)
}

// load adds a stored row.
func (r rows[T]) load(id string, value []byte) error {
	var kind T
	row := kind.ProtoReflect().New().Interface().(T)
	r[id] = row
	return proto.Unmarshal(value, row)
}

// table returns the rows of a kind; nil: this version does not know the kind.
func (s *State) table(kind string) interface {
	set(id string, row proto.Message)
	load(id string, value []byte) error
} {
	switch kind {
	case principalRow:
		return s.principals
	case tokenRow:
		return s.tokens
	case sessionRow:
		return s.sessions
	case useRow:
		return s.uses
	case loginRow:
		return s.logins
	case anchorRow:
		return s.Anchors.rows
	case joinRow:
		return s.Machines.joins
	case machineRow:
		return s.Machines.machines
	}
	return nil
}

// The kinds of rows.
const (
	principalRow = "principal"
	tokenRow     = "token"
	sessionRow   = "session"
	useRow       = "use"
	loginRow     = "login"
	anchorRow    = "anchor"
	joinRow      = "join"
	machineRow   = "machine"
)

// Change is one change of the state. Exactly one field is set.
type Change struct {
	Put    *apiv1.AccessPut
	Delete *apiv1.AccessDelete
}

// ChangeOf returns the change in a record.
func ChangeOf(rec *apiv1.Record) (Change, error) {
	switch k := rec.GetKind().(type) {
	case *apiv1.Record_AccessPut:
		return Change{Put: k.AccessPut}, nil
	case *apiv1.Record_AccessDelete:
		return Change{Delete: k.AccessDelete}, nil
	}
	return Change{}, fmt.Errorf("a record of the access state is a %T: a newer version has written it", rec.GetKind())
}

// Record returns the record of a change.
func (c Change) Record() *apiv1.Record {
	if c.Put != nil {
		return &apiv1.Record{Kind: &apiv1.Record_AccessPut{AccessPut: c.Put}}
	}
	return &apiv1.Record{Kind: &apiv1.Record_AccessDelete{AccessDelete: c.Delete}}
}

// Row returns the kind and the id of the row that a change is about, and the row after it; nil: it
// is deleted.
func (c Change) Row() (kind, id string, row proto.Message) {
	if c.Delete != nil {
		return c.Delete.Kind, c.Delete.Id, nil
	}
	switch k := c.Put.GetKind().(type) {
	case *apiv1.AccessPut_Principal:
		return principalRow, k.Principal.Name, k.Principal
	case *apiv1.AccessPut_Token:
		return tokenRow, k.Token.Id, k.Token
	case *apiv1.AccessPut_Session:
		return sessionRow, k.Session.Id, k.Session
	case *apiv1.AccessPut_Use:
		return useRow, k.Use.Id, k.Use
	case *apiv1.AccessPut_Login:
		return loginRow, k.Login.Code, k.Login
	case *apiv1.AccessPut_Anchor:
		return anchorRow, k.Anchor.Partition, k.Anchor
	case *apiv1.AccessPut_Join:
		return joinRow, k.Join.Id, k.Join
	case *apiv1.AccessPut_Machine:
		return machineRow, k.Machine.Id, k.Machine
	}
	return "", "", nil
}

// OfCredentials reports whether the change may change what [State.Credentials] returns.
func (c Change) OfCredentials() bool {
	kind, _, _ := c.Row()
	return kind != anchorRow && kind != joinRow
}

// Apply applies a change.
func (s *State) Apply(c Change) {
	kind, id, row := c.Row()
	if t := s.table(kind); t != nil {
		t.set(id, row)
	}
}

// Load adds a stored row.
func (s *State) Load(kind, id string, value []byte) error {
	t := s.table(kind)
	if t == nil {
		return fmt.Errorf("row %s of the access state: its kind is %q, which this version does not know", id, kind)
	}
	if err := t.load(id, value); err != nil {
		return fmt.Errorf("row %s of the access state: %w", id, err)
	}
	return nil
}

// Credentials returns the tokens and the keys of machines as a guard accepts them.
func (s *State) Credentials() []Credential {
	all := make([]Credential, 0, len(s.tokens)+len(s.sessions)+len(s.Machines.machines))
	for _, m := range s.Machines.machines {
		all = append(all, machineCredential(m))
	}
	for _, x := range s.sessions {
		if c, err := s.session(x); err == nil && !s.principals[x.Principal].Disabled {
			all = append(all, c)
		}
	}
	for _, t := range s.tokens {
		p := &Principal{Name: t.Principal, Kind: KindService, Token: t.Id, usedMs: &atomic.Int64{}}
		p.usedMs.Store(s.uses[t.Id].GetUsedMs())
		own, ok := bindingOf(t.Binding)
		if ok {
			p.Bindings = append(p.Bindings, own)
		}
		if row := s.principals[t.Principal]; row != nil {
			p.Kind = row.Kind
			p.Bindings = append(p.Bindings, bindingsOf(row)...)
		}
		invalid := ""
		if s.principals[t.Principal].GetDisabled() {
			invalid = t.Principal + " is disabled"
		}
		if len(t.Digest) == sha256.Size {
			all = append(all, Credential{Digest: [sha256.Size]byte(t.Digest), Until: own.Expires, Of: p, Invalid: invalid})
		}
		if len(t.Former) == sha256.Size {
			all = append(all, Credential{Digest: [sha256.Size]byte(t.Former), Until: earlier(own.Expires, time.UnixMilli(t.FormerUntilMs)), Of: p, Invalid: invalid})
		}
	}
	return all
}

// earlier returns the earlier of two times; a zero one is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// bindingOf reads the row of a binding. ok is false if a newer version has written a scope that
// this one does not know: then the binding gives nothing.
func bindingOf(row *apiv1.BindingRow) (b Binding, ok bool) {
	scope, err := ParseScope(row.GetScope())
	return Binding{row.GetRole(), scope, timeOf(row.GetExpiresMs())}, err == nil
}

func bindingsOf(row *apiv1.PrincipalRow) (all Bindings) {
	for _, r := range row.GetBindings() {
		if b, ok := bindingOf(r); ok {
			all = append(all, b)
		}
	}
	return all
}

// timeOf returns the time of Unix milliseconds; 0 is the zero time.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// stamp returns Unix milliseconds as the API has times; nil: 0.
func stamp(ms int64) *timestamppb.Timestamp {
	if ms == 0 {
		return nil
	}
	return timestamppb.New(time.UnixMilli(ms))
}

func tokenMessage(t *apiv1.TokenRow, now time.Time) *apiv1.Token {
	m := &apiv1.Token{
		Id: t.Id, Principal: t.Principal, Role: t.Binding.GetRole(), Scope: t.Binding.GetScope(),
		ExpiresAt: stamp(t.Binding.GetExpiresMs()), CreatedAt: stamp(t.Binding.GetCreatedMs()), CreatedBy: t.Binding.GetCreatedBy(), RotatedAt: stamp(t.RotatedMs),
	}
	if len(t.Former) > 0 && now.UnixMilli() < t.FormerUntilMs {
		m.FormerUntil = stamp(t.FormerUntilMs)
	}
	return m
}

func bindingMessage(principal string, b *apiv1.BindingRow) *apiv1.Binding {
	return &apiv1.Binding{
		Id: b.Id, Principal: principal, Role: b.Role, Scope: b.Scope,
		ExpiresAt: stamp(b.ExpiresMs), CreatedAt: stamp(b.CreatedMs), CreatedBy: b.CreatedBy,
	}
}

// principalMessage returns a principal without its bindings.
func principalMessage(row *apiv1.PrincipalRow) *apiv1.Principal {
	return &apiv1.Principal{Principal: row.Name, Kind: row.Kind, Disabled: row.Disabled, CreatedAt: stamp(row.CreatedMs), CreatedBy: row.CreatedBy, Provider: row.GetProvider().GetIssuer()}
}

// Tokens returns the tokens that a principal may see, by principal and id. An app leaves only those
// that hold in it.
func (s *State) Tokens(by *Principal, app string, now time.Time) []*apiv1.Token {
	var all []*apiv1.Token
	for _, t := range s.tokens {
		if by.seesBinding(t.Binding, app, now) {
			m := tokenMessage(t, now)
			m.UsedAt = stamp(s.uses[t.Id].GetUsedMs())
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *apiv1.Token) int {
		return cmp.Or(cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Id, b.Id))
	})
	return all
}

// Bindings returns the bindings that a principal may see, by principal, scope and role.
func (s *State) Bindings(by *Principal, app string, now time.Time) []*apiv1.Binding {
	var all []*apiv1.Binding
	for _, name := range slices.Sorted(maps.Keys(s.principals)) {
		all = append(all, s.bindingsFor(by, name, app, now)...)
	}
	return all
}

// bindingsFor returns the bindings of one principal that another one may see.
func (s *State) bindingsFor(by *Principal, name, app string, now time.Time) []*apiv1.Binding {
	var all []*apiv1.Binding
	for _, b := range s.principals[name].GetBindings() {
		if by.seesBinding(b, app, now) {
			all = append(all, bindingMessage(name, b))
		}
	}
	slices.SortFunc(all, func(a, b *apiv1.Binding) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Role, b.Role))
	})
	return all
}

// Principals returns the principals that another one may see, by name: all for one that sees the
// access to the whole cluster, otherwise those with a binding or a token that it sees.
func (s *State) Principals(by *Principal, now time.Time) []*apiv1.Principal {
	seen := map[string]bool{}
	for _, t := range s.tokens {
		if by.seesBinding(t.Binding, "", now) {
			seen[t.Principal] = true
		}
	}
	var all []*apiv1.Principal
	for _, name := range slices.Sorted(maps.Keys(s.principals)) {
		row := s.principals[name]
		bindings := s.bindingsFor(by, name, "", now)
		if len(bindings) > 0 || seen[name] || by.May("access.read", "") {
			m := principalMessage(row)
			m.Bindings = bindings
			all = append(all, m)
		}
	}
	return all
}

// seesBinding reports whether the principal may see a binding, and whether it holds in an app; ""
// is any.
func (p *Principal) seesBinding(row *apiv1.BindingRow, app string, now time.Time) bool {
	b, ok := bindingOf(row)
	if app != "" && !b.Scope.Covers(app) {
		return false
	}
	return p.Bindings.MaySee("access.read", b.Scope, now) || !ok && p.May("access.read", "")
}
