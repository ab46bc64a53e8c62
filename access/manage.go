package access

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Bounds of the state, so that a principal that may create tokens cannot fill the memory of the
// servers.
const (
	maxTokens      = 20_000
	maxPrincipals  = 20_000
	maxBindings    = 100 // of one principal
	maxTokensOfOne = 100
)

const (
	defaultTTL  = 90 * 24 * time.Hour
	shortestTTL = time.Second
	longestTTL  = 10 * 365 * 24 * time.Hour
	defaultKeep = 24 * time.Hour
	longestKeep = 30 * 24 * time.Hour
	never       = "never" // a token without an expiry
)

// By is the caller of a change, with the time and a source of random bytes that does not fail.
type By struct {
	Principal *Principal
	Now       time.Time
	Random    io.Reader
}

// principalName is the form of the names of principals. It allows addresses of mail.
var principalName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$`)

// reservedNames begin the names of principals that the server has of its own.
var reservedNames = []string{"legacy-", groupPrefix}

func checkName(what, name string) error {
	if !principalName.MatchString(name) {
		return invalid("%s %.80q is not a name: use letters, digits, '.', '_', '@', '+' and '-', at most 64, and begin with a letter or a digit", what, name)
	}
	for _, prefix := range reservedNames {
		if strings.HasPrefix(name, prefix) {
			return invalid("%s %q begins with %s, which is reserved", what, name, prefix)
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// readBinding reads the role and the scope of a request.
func readBinding(role, scope string) (b Binding, err error) {
	if _, ok := roles[role]; !ok {
		return b, invalid("the role is %.40q, want one of %s", role, strings.Join(RoleNames(), ", "))
	}
	b.Role = role
	if b.Scope, err = ParseScope(scope); err != nil {
		return b, invalid("%v", err)
	}
	return b, nil
}

// readTime reads a number of days, as "90d", or a duration as Go has it.
func readTime(field, text string, shortest, longest time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		if n, err = strconv.Atoi(days); err == nil && n >= 0 && n <= int(longestTTL/(24*time.Hour)) {
			d = time.Duration(n) * 24 * time.Hour
		} else {
			d = -1
		}
	}
	if err != nil || d < shortest || d > longest {
		return 0, invalid("%s is %.40q, want a time from %v to %d days, as 90d or 12h", field, text, shortest, int(longest.Hours()/24))
	}
	return d, nil
}

// expiry reads how long a token is valid; the zero time is forever.
func expiry(now time.Time, ttl string) (time.Time, error) {
	if ttl == never {
		return time.Time{}, nil
	}
	d := defaultTTL
	if ttl != "" {
		var err error
		if d, err = readTime("ttl", ttl, shortestTTL, longestTTL); err != nil {
			return time.Time{}, err
		}
	}
	return now.Add(d).Truncate(time.Millisecond), nil
}

// mayGive returns an error if the caller may not give a binding.
func (by *By) mayGive(b Binding) error {
	if by.Principal.Bindings.MayGive(b, by.Now) {
		return nil
	}
	if shorter := (Binding{b.Role, b.Scope, by.Now}); by.Principal.Bindings.MayGive(shorter, by.Now) {
		return status.Errorf(codes.PermissionDenied, "%s may give the role %s in %s only for a time: its own permission to do so expires; choose an earlier expiry", by.Principal.title(), b.Role, b.Scope)
	}
	return status.Errorf(codes.PermissionDenied, "%s may not give the role %s in %s: that takes the permission access.write and each permission of the role in all of it", by.Principal.title(), b.Role, b.Scope)
}

// mayTake returns an error if the caller may not remove a binding.
func (by *By) mayTake(row *apiv1.BindingRow) error {
	b, ok := bindingOf(row)
	if !ok {
		b = Binding{Scope: Scope{Cluster: true}} // of a newer version
	}
	if by.Principal.Bindings.MayTake(b, by.Now) {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "%s may not change what has the role %s in %s: that takes the permission access.write and each permission of the role in all of it", by.Principal.title(), row.GetRole(), row.GetScope())
}

// mayActAs returns an error if the caller must not get a token of a principal, because its bindings
// would give the caller what it may not give.
func (by *By) mayActAs(row *apiv1.PrincipalRow) error {
	for _, b := range row.GetBindings() {
		if err := by.mayTake(b); err != nil {
			return status.Errorf(codes.PermissionDenied, "%s has the role %s in %s, which a token of it would have too: %s", row.Name, b.Role, b.Scope, status.Convert(err).Message())
		}
	}
	return nil
}

// CreateToken returns the changes that create a token, and the token with its text.
func (s *State) CreateToken(by By, q *apiv1.CreateTokenRequest) ([]Change, *apiv1.Token, error) {
	if err := checkName("the name", q.Name); err != nil {
		return nil, nil, err
	}
	b, err := readBinding(q.Role, q.Scope)
	if err != nil {
		return nil, nil, err
	}
	if b.Expires, err = expiry(by.Now, q.Ttl); err != nil {
		return nil, nil, err
	}
	if q.Ttl == "" {
		b.Expires = by.Principal.Bindings.upTo(b, by.Now)
	}
	if err := by.mayGive(b); err != nil {
		return nil, nil, err
	}
	var changes []Change
	switch row := s.principals[q.Name]; {
	case row == nil && len(s.principals) >= maxPrincipals:
		return nil, nil, full("principals", maxPrincipals)
	case row == nil:
		row = &apiv1.PrincipalRow{Name: q.Name, Kind: KindService, CreatedMs: by.Now.UnixMilli(), CreatedBy: by.Principal.Name}
		changes = append(changes, putPrincipal(row))
	case row.Kind != KindService:
		return nil, nil, status.Errorf(codes.FailedPrecondition, "%s is a %s, and tokens are for service accounts: choose another name", q.Name, row.Kind)
	default:
		if err := by.mayActAs(row); err != nil {
			return nil, nil, err
		}
	}
	if len(s.tokens) >= maxTokens {
		return nil, nil, full("tokens", maxTokens)
	}
	if n := s.tokensOf(q.Name); n >= maxTokensOfOne {
		return nil, nil, full("tokens of "+q.Name, n)
	}
	t := &apiv1.TokenRow{
		Principal: q.Name,
		Binding:   &apiv1.BindingRow{Role: b.Role, Scope: b.Scope.String(), ExpiresMs: millis(b.Expires), CreatedMs: by.Now.UnixMilli(), CreatedBy: by.Principal.Name},
	}
	text, err := NewToken(by.Random)
	if err != nil {
		return nil, nil, err
	}
	digest := Digest(text)
	t.Id, t.Digest = TokenID(digest), digest[:]
	if s.tokens[t.Id] != nil {
		return nil, nil, status.Error(codes.Aborted, "the id of the new token is taken: try again")
	}
	m := tokenMessage(t, by.Now)
	m.Token = text
	return append(changes, putToken(t)), m, nil
}

// millis returns Unix milliseconds; 0: the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func full(what string, limit int) error {
	return status.Errorf(codes.ResourceExhausted, "there are %d %s, the limit: remove some that are no longer used", limit, what)
}

func (s *State) tokensOf(principal string) (n int) {
	for _, t := range s.tokens {
		if t.Principal == principal {
			n++
		}
	}
	return n
}

func putPrincipal(row *apiv1.PrincipalRow) Change {
	return Change{Put: &apiv1.AccessPut{Kind: &apiv1.AccessPut_Principal{Principal: row}}}
}

func putToken(row *apiv1.TokenRow) Change {
	return Change{Put: &apiv1.AccessPut{Kind: &apiv1.AccessPut_Token{Token: row}}}
}

// token returns a token that the caller may change. One that it may not see is not found.
func (s *State) token(by By, id string) (*apiv1.TokenRow, error) {
	t := s.tokens[id]
	if t == nil || !by.Principal.seesBinding(t.Binding, "", by.Now) {
		return nil, status.Errorf(codes.NotFound, "there is no token %.40q: `wheelwork token list` shows what there is", id)
	}
	return t, by.mayTake(t.Binding)
}

// RotateToken returns the changes that give a token a new text, and the token with it.
func (s *State) RotateToken(by By, q *apiv1.RotateTokenRequest) ([]Change, *apiv1.Token, error) {
	t, err := s.token(by, q.Id)
	if err == nil {
		err = by.mayActAs(s.principals[t.Principal])
	}
	if err != nil {
		return nil, nil, err
	}
	keep := defaultKeep
	if q.Keep != "" {
		if keep, err = readTime("keep", q.Keep, 0, longestKeep); err != nil {
			return nil, nil, err
		}
	}
	t = proto.CloneOf(t)
	if q.Ttl != "" {
		until, err := expiry(by.Now, q.Ttl)
		if err != nil {
			return nil, nil, err
		}
		t.Binding.ExpiresMs = millis(until)
	} else if at := t.Binding.ExpiresMs; at != 0 && at <= by.Now.UnixMilli() {
		return nil, nil, status.Errorf(codes.FailedPrecondition, "the token %s has expired at %s: say how long the new text is valid (ttl)", t.Id, time.UnixMilli(at).UTC().Format(time.RFC3339))
	}
	b, ok := bindingOf(t.Binding)
	if !ok {
		return nil, nil, status.Errorf(codes.FailedPrecondition, "the token %s is of a newer version", t.Id)
	}
	if err := by.mayGive(b); err != nil {
		return nil, nil, err
	}
	text, err := NewToken(by.Random)
	if err != nil {
		return nil, nil, err
	}
	digest := Digest(text)
	t.Former, t.FormerUntilMs = t.Digest, by.Now.Add(keep).UnixMilli()
	if keep == 0 {
		t.Former, t.FormerUntilMs = nil, 0
	}
	t.Digest, t.RotatedMs = digest[:], by.Now.UnixMilli()
	m := tokenMessage(t, by.Now)
	m.Token = text
	return []Change{putToken(t)}, m, nil
}

// RevokeToken returns the changes that remove a token.
func (s *State) RevokeToken(by By, id string) ([]Change, error) {
	t, err := s.token(by, id)
	if err != nil {
		return nil, err
	}
	changes := []Change{{Delete: &apiv1.AccessDelete{Kind: tokenRow, Id: t.Id}}}
	if s.uses[t.Id] != nil {
		changes = append(changes, Change{Delete: &apiv1.AccessDelete{Kind: useRow, Id: t.Id}})
	}
	return changes, nil
}

// AddBinding returns the change that gives a principal a binding, and the binding.
func (s *State) AddBinding(by By, q *apiv1.AddBindingRequest) ([]Change, *apiv1.Binding, error) {
	b, err := readBinding(q.Role, q.Scope)
	if err != nil {
		return nil, nil, err
	}
	if q.ExpiresAt != nil {
		b.Expires = q.ExpiresAt.AsTime().Truncate(time.Millisecond)
		if err := q.ExpiresAt.CheckValid(); err != nil || !b.Expires.After(by.Now) {
			return nil, nil, invalid("expires_at is not a time in the future")
		}
	}
	if err := by.mayGive(b); err != nil {
		return nil, nil, err
	}
	if strings.HasPrefix(q.Principal, "legacy-") {
		return nil, nil, status.Errorf(codes.FailedPrecondition, "%.64s is the principal of a token in a file of the server, whose role is fixed", q.Principal)
	}
	row, err := s.bound(by, q.Principal)
	if err != nil {
		return nil, nil, err
	}
	at := slices.IndexFunc(row.Bindings, func(r *apiv1.BindingRow) bool { return r.Role == b.Role && r.Scope == b.Scope.String() })
	if at < 0 {
		if len(row.Bindings) >= maxBindings {
			return nil, nil, full("bindings of "+row.Name, maxBindings)
		}
		id, err := newID("bnd-", by.Random)
		if err != nil {
			return nil, nil, err
		}
		at = len(row.Bindings)
		row.Bindings = append(row.Bindings, &apiv1.BindingRow{Id: id, Role: b.Role, Scope: b.Scope.String(), CreatedMs: by.Now.UnixMilli(), CreatedBy: by.Principal.Name})
	}
	row.Bindings[at].ExpiresMs = millis(b.Expires)
	return []Change{putPrincipal(row)}, bindingMessage(row.Name, row.Bindings[at]), nil
}

// bound returns a copy of a principal that gets a binding. The principal of a group exists from its first
// binding on, because the server learns of groups only when people sign in.
func (s *State) bound(by By, name string) (*apiv1.PrincipalRow, error) {
	row := s.principals[name]
	switch {
	case row != nil:
		return proto.CloneOf(row), nil
	case !strings.HasPrefix(name, groupPrefix):
		return nil, status.Errorf(codes.NotFound, "there is no principal %.64q: `wheelwork user create` makes a user, `wheelwork token create` a service account, and %sNAME is a group of the OpenID provider", name, groupPrefix)
	case len(s.principals) >= maxPrincipals:
		return nil, full("principals", maxPrincipals)
	}
	return &apiv1.PrincipalRow{Name: name, Kind: KindGroup, CreatedMs: by.Now.UnixMilli(), CreatedBy: by.Principal.Name}, checkGroup(name)
}

// RemoveBinding returns the change that removes a binding. A group ends with its last one.
func (s *State) RemoveBinding(by By, id string) ([]Change, error) {
	for _, row := range s.principals {
		at := slices.IndexFunc(row.Bindings, func(b *apiv1.BindingRow) bool { return b.Id == id })
		if at < 0 || !by.Principal.seesBinding(row.Bindings[at], "", by.Now) {
			continue
		}
		if err := by.mayTake(row.Bindings[at]); err != nil {
			return nil, err
		}
		row = proto.CloneOf(row)
		row.Bindings = slices.Delete(row.Bindings, at, at+1)
		if row.Kind == KindGroup && len(row.Bindings) == 0 && !row.Disabled {
			return []Change{{Delete: &apiv1.AccessDelete{Kind: principalRow, Id: row.Name}}}, nil
		}
		return []Change{putPrincipal(row)}, nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no binding %.40q: `wheelwork binding list` shows what there is", id)
}

// newID returns an id of 80 random bits.
func newID(prefix string, random io.Reader) (string, error) {
	b := make([]byte, 10)
	if _, err := io.ReadFull(random, b); err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	return prefix + tokenText.EncodeToString(b), nil
}
