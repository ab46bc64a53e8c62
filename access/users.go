package access

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// This file has users with passwords, and their sessions. Passwords are hashed by the caller, because
// that takes longer than a change may.

const (
	// lockAfter is the number of failed sign-ins of a user after which further ones are refused for a
	// time, which doubles with each further failure up to lockLongest.
	lockAfter   = 5
	lockFirst   = 30 * time.Second
	lockLongest = time.Hour

	sessionIdle    = 12 * time.Hour      // a session ends when it was not used for so long
	sessionLongest = 30 * 24 * time.Hour // and at the latest after this time
	// sessionMoves is how far the end of a session moves at a time: each move is a record.
	sessionMoves  = time.Hour
	maxSessionsOf = 16 // of a user; the oldest makes room
)

// errSignIn is the refusal of a sign-in, whatever is wrong.
var errSignIn = status.Error(codes.Unauthenticated, "the name or the password is wrong")

// CreateUser returns the change that creates a user, with the hash of a password that the first
// sign-in must replace. Only a principal that manages the access to the cluster may do so: a user
// belongs to no app.
func (s *State) CreateUser(by By, name, hash string) ([]Change, error) {
	if err := checkName("the name", name); err != nil {
		return nil, err
	}
	if err := by.mayManageUsers(); err != nil {
		return nil, err
	}
	if had := s.principals[name]; had != nil {
		return nil, status.Errorf(codes.AlreadyExists, "there is a %s with the name %s: choose another one", had.Kind, name)
	}
	if len(s.principals) >= maxPrincipals {
		return nil, full("principals", maxPrincipals)
	}
	now := by.Now.UnixMilli()
	return []Change{putPrincipal(&apiv1.PrincipalRow{
		Name: name, Kind: KindUser, CreatedMs: now, CreatedBy: by.Principal.Name,
		Password: &apiv1.PasswordRow{Hash: hash, MustChange: true, ChangedMs: now},
	})}, nil
}

func (by *By) mayManageUsers() error {
	if by.Principal.May("access.write", "") {
		return nil
	}
	return lacks(by.Principal, "access.write", "")
}

// user returns a copy of a user that the caller may manage. A principal with a role that the caller
// may not give is above it.
func (s *State) user(by By, name string) (*apiv1.PrincipalRow, error) {
	if err := by.mayManageUsers(); err != nil {
		return nil, err
	}
	row := s.principals[name]
	if row == nil {
		return nil, status.Errorf(codes.NotFound, "there is no user %.64q: `wheelwork user list` shows what there is", name)
	}
	for _, b := range row.Bindings {
		if err := by.mayTake(b); err != nil {
			return nil, err
		}
	}
	return proto.CloneOf(row), nil
}

// DisableUser returns the changes that keep a principal out, with its tokens and sessions, or let it in
// again. Its sessions end.
func (s *State) DisableUser(by By, name string, disabled bool) ([]Change, *apiv1.Principal, error) {
	row, err := s.user(by, name)
	if err != nil {
		return nil, nil, err
	}
	if name == by.Principal.Name && disabled {
		return nil, nil, status.Error(codes.FailedPrecondition, "you cannot disable yourself: another admin can")
	}
	row.Disabled = disabled
	return append([]Change{putPrincipal(row)}, s.endSessions(name)...), principalMessage(row), nil
}

// endSessions returns the changes that end the sessions of a principal.
func (s *State) endSessions(name string) []Change {
	var changes []Change
	for _, x := range s.sessionsOf(name) {
		changes = append(changes, endSession(x.Id))
	}
	return changes
}

func endSession(id string) Change {
	return Change{Delete: &apiv1.AccessDelete{Kind: sessionRow, Id: id}}
}

// sessionsOf returns the sessions of a principal, the oldest first.
func (s *State) sessionsOf(name string) []*apiv1.SessionRow {
	var all []*apiv1.SessionRow
	for _, x := range s.sessions {
		if x.Principal == name {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b *apiv1.SessionRow) int { return int(a.CreatedMs - b.CreatedMs) })
	return all
}

// ResetPassword returns the changes that give a user a password which the next sign-in must replace.
func (s *State) ResetPassword(by By, name, hash string) ([]Change, error) {
	row, err := s.user(by, name)
	if err != nil {
		return nil, err
	}
	if row.Kind != KindUser {
		return nil, status.Errorf(codes.FailedPrecondition, "%s is a %s, and passwords are for users", name, row.Kind)
	}
	if row.Provider != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "%s signs in at %s, which has the password", name, row.Provider.Issuer)
	}
	row.Password = &apiv1.PasswordRow{Hash: hash, MustChange: true, ChangedMs: by.Now.UnixMilli()}
	return append([]Change{putPrincipal(row)}, s.endSessions(name)...), nil
}

// HasAdmin reports whether a user may sign in and do everything in the cluster. A group of a provider
// counts as one: the server learns its members only at their sign-ins.
func (s *State) HasAdmin(now time.Time) bool {
	for _, row := range s.principals {
		if row.Disabled || row.Password == nil && row.Provider == nil && row.Kind != KindGroup {
			continue
		}
		for _, b := range bindingsOf(row) {
			if b.Role == RoleAdmin && b.Scope.Cluster && b.holds(now) {
				return true
			}
		}
	}
	return false
}

// Setup returns the change that makes the first administrator, with the hash of its password.
func (s *State) Setup(by By, name, hash string) ([]Change, error) {
	if err := checkName("the name", name); err != nil {
		return nil, err
	}
	if s.HasAdmin(by.Now) {
		return nil, status.Error(codes.FailedPrecondition, "there is an administrator, who creates further users: wheelwork user create")
	}
	if had := s.principals[name]; had != nil {
		return nil, status.Errorf(codes.AlreadyExists, "there is a %s with the name %s: choose another one", had.Kind, name)
	}
	now := by.Now.UnixMilli()
	id, err := newID("bnd-", by.Random)
	if err != nil {
		return nil, err
	}
	return []Change{putPrincipal(&apiv1.PrincipalRow{
		Name: name, Kind: KindUser, CreatedMs: now, CreatedBy: Setup.Name,
		Password: &apiv1.PasswordRow{Hash: hash, ChangedMs: now},
		Bindings: []*apiv1.BindingRow{{Id: id, Role: RoleAdmin, Scope: clusterScope, CreatedMs: now, CreatedBy: Setup.Name}},
	})}, nil
}

// Password returns the hash with which a sign-in is compared, and an error if the user may not sign in
// with a password now. A user that does not exist has a hash that no password has, so that a client
// cannot tell by the time whether a name exists.
func (s *State) Password(name string, now time.Time) (hash string, err error) {
	row := s.principals[name]
	if row.GetPassword() == nil || row.GetDisabled() {
		return "", errSignIn
	}
	if until := row.Password.LockedUntilMs; now.UnixMilli() < until {
		return "", status.Errorf(codes.ResourceExhausted, "too many sign-ins of %s have failed: try again in %v, or let an admin set another password (wheelwork user passwd)", name, time.UnixMilli(until).Sub(now).Round(time.Second))
	}
	return row.Password.Hash, nil
}

// SignIn is a sign-in whose password was compared.
type SignIn struct {
	Name    string
	Hash    string // with which the password was compared
	Fits    bool   // the password has this hash
	NewHash string // of the password that replaces it; "": it stays
	Address string
	Program string
	By      By // without a principal
}

// SignIn returns the changes of a sign-in, and the text of the token of its session. After a wrong
// password there are changes too: err is then the answer to the client.
func (s *State) SignIn(x SignIn) (changes []Change, made *apiv1.Session, token string, err error) {
	if _, err := s.Password(x.Name, x.By.Now); err != nil {
		return nil, nil, "", err
	}
	row := proto.CloneOf(s.principals[x.Name])
	if row.Password.Hash != x.Hash {
		return nil, nil, "", status.Error(codes.Aborted, "the password was changed meanwhile: sign in again")
	}
	if !x.Fits {
		row.Password.Failures++
		if over := row.Password.Failures - lockAfter; over >= 0 {
			row.Password.LockedUntilMs = x.By.Now.Add(min(lockFirst<<min(over, 10), lockLongest)).UnixMilli()
		}
		return []Change{putPrincipal(row)}, nil, "", errSignIn
	}
	if row.Password.MustChange && x.NewHash == "" {
		return nil, nil, "", status.Error(codes.FailedPrecondition, "the password must be replaced: give a new one with the sign-in")
	}
	if row.Password.Failures > 0 || x.NewHash != "" {
		row.Password.Failures, row.Password.LockedUntilMs = 0, 0
		if x.NewHash != "" {
			row.Password = &apiv1.PasswordRow{Hash: x.NewHash, ChangedMs: x.By.Now.UnixMilli()}
			changes = append(changes, s.endSessions(x.Name)...)
		}
		changes = append(changes, putPrincipal(row))
	}
	if token, err = NewToken(x.By.Random); err != nil {
		return nil, nil, "", err
	}
	opened, made := s.openSession(&apiv1.SessionRow{Principal: x.Name, Address: x.Address, Program: x.Program}, token, x.By.Now)
	if x.NewHash != "" {
		opened = opened[len(opened)-1:] // all earlier sessions have ended
	}
	return append(changes, opened...), made, token, nil
}

// openSession returns the changes that start the session of a token: the oldest session of the principal
// makes room if there are too many, and the last change is the new one. The caller sets the principal,
// where the session comes from and, if it is not the usual one, the latest end.
func (s *State) openSession(x *apiv1.SessionRow, token string, now time.Time) ([]Change, *apiv1.Session) {
	var changes []Change
	if open := s.sessionsOf(x.Principal); len(open) >= maxSessionsOf {
		changes = append(changes, endSession(open[0].Id))
	}
	digest := Digest(token)
	x.Id, x.Digest, x.CreatedMs = sessionID(digest), digest[:], now.UnixMilli()
	x.LimitMs = cmp.Or(x.LimitMs, now.Add(sessionLongest).UnixMilli())
	x.ExpiresMs = min(now.Add(sessionIdle).UnixMilli(), x.LimitMs)
	return append(changes, putSession(x)), sessionMessage(x)
}

func sessionID(digest [32]byte) string { return "ses-" + tokenText.EncodeToString(digest[:idBytes]) }

func putSession(row *apiv1.SessionRow) Change {
	return Change{Put: &apiv1.AccessPut{Kind: &apiv1.AccessPut_Session{Session: row}}}
}

func sessionMessage(x *apiv1.SessionRow) *apiv1.Session {
	return &apiv1.Session{Id: x.Id, Principal: x.Principal, Address: x.Address, Program: x.Program, CreatedAt: stamp(x.CreatedMs), ExpiresAt: stamp(x.ExpiresMs)}
}

// Sessions returns the sessions that a principal may see, by user and time.
func (s *State) Sessions(by *Principal) []*apiv1.Session {
	var all []*apiv1.Session
	for _, x := range s.sessions {
		if x.Principal == by.Name || by.May("access.read", "") {
			all = append(all, sessionMessage(x))
		}
	}
	slices.SortFunc(all, func(a, b *apiv1.Session) int {
		return cmp.Or(cmp.Compare(a.Principal, b.Principal), a.CreatedAt.AsTime().Compare(b.CreatedAt.AsTime()), cmp.Compare(a.Id, b.Id))
	})
	return all
}

// Used returns the change that moves the end of a session that was used, or notes the use of a token;
// none: that is not due yet.
func (s *State) Used(id string, now time.Time) []Change {
	if s.tokens[id] != nil {
		if now.UnixMilli()-s.uses[id].GetUsedMs() < usedEvery.Milliseconds() {
			return nil
		}
		return []Change{{Put: &apiv1.AccessPut{Kind: &apiv1.AccessPut_Use{Use: &apiv1.TokenUseRow{Id: id, UsedMs: now.UnixMilli()}}}}}
	}
	x := s.sessions[id]
	if x == nil {
		return nil
	}
	end := min(now.Add(sessionIdle).UnixMilli(), x.LimitMs)
	if end-x.ExpiresMs < sessionMoves.Milliseconds() {
		return nil
	}
	x = proto.CloneOf(x)
	x.ExpiresMs = end
	return []Change{putSession(x)}
}

// EndSession returns the change that ends a session: one of the caller, or one of a principal that the
// caller manages.
func (s *State) EndSession(by By, id string) ([]Change, error) {
	x := s.sessions[id]
	if x != nil && x.Principal != by.Principal.Name {
		if _, err := s.user(by, x.Principal); err != nil {
			x = nil
		}
	}
	if x == nil {
		return nil, status.Errorf(codes.NotFound, "there is no session %.40q", id)
	}
	return []Change{endSession(id)}, nil
}

// session returns the token of a session as a guard accepts it.
func (s *State) session(x *apiv1.SessionRow) (Credential, error) {
	row := s.principals[x.Principal]
	if row == nil || len(x.Digest) != 32 {
		return Credential{}, fmt.Errorf("the session %s has no user", x.Id)
	}
	return Credential{Digest: [32]byte(x.Digest), Until: time.UnixMilli(x.ExpiresMs), Of: &Principal{
		Name: row.Name, Kind: row.Kind, Token: x.Id, Bindings: append(bindingsOf(row), s.bindingsOfGroups(x.Groups)...), session: &session{ends: time.UnixMilli(x.ExpiresMs), provider: row.GetProvider().GetIssuer()},
	}}, nil
}
