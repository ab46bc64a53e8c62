package access

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// This file has users that an OpenID provider signs in, and the groups that it knows them by.

const (
	// groupPrefix begins the name of the principal of a group. Its bindings hold for the sessions of
	// the people in this group of the provider.
	groupPrefix = "group:"
	maxGroup    = 128 // bytes of the name of a group
	// maxGroupsOf bounds the groups of a session. Groups with bindings come first.
	maxGroupsOf = 200
	// federatedLongest is the latest end of a session from a provider, because its groups are those of
	// the sign-in: after leaving a group, a person loses its bindings within this time.
	federatedLongest = 24 * time.Hour
)

// AuthProxy is the issuer of the people that an authenticating proxy names in a header. The issuer of an
// OpenID provider is an address, so no provider has this one.
const AuthProxy = "auth-proxy"

// Federated is a sign-in that a provider has confirmed.
type Federated struct {
	Issuer, Subject string
	Name            string // of the user that the first sign-in creates
	Groups          []string
	Address         string
	Program         string
	By              By // without a principal
}

// SignInFederated returns the changes of a sign-in at a provider, and the text of the token of its
// session.
func (s *State) SignInFederated(x Federated) ([]Change, *apiv1.Session, string, error) {
	if x.Issuer == "" || x.Subject == "" {
		return nil, nil, "", invalid("the provider has named no person")
	}
	var changes []Change
	row := s.ofProvider(x.Issuer, x.Subject)
	if row == nil {
		if err := checkName("the name of the person at the provider", x.Name); err != nil {
			return nil, nil, "", err
		}
		if had := s.principals[x.Name]; had != nil {
			other := "claim for names (--oidc-name-claim)"
			if x.Issuer == AuthProxy {
				other = "header (--auth-proxy-header)"
			}
			return nil, nil, "", status.Errorf(codes.AlreadyExists, "there is already a %s with the name %s, which is not this person of the provider: an administrator can choose another %s", had.Kind, x.Name, other)
		}
		if len(s.principals) >= maxPrincipals {
			return nil, nil, "", full("principals", maxPrincipals)
		}
		row = &apiv1.PrincipalRow{
			Name: x.Name, Kind: KindUser, CreatedMs: x.By.Now.UnixMilli(), CreatedBy: x.Issuer,
			Provider: &apiv1.ProviderRow{Issuer: x.Issuer, Subject: x.Subject},
		}
		changes = append(changes, putPrincipal(row))
	}
	if row.Disabled {
		return nil, nil, "", status.Errorf(codes.PermissionDenied, "%s is disabled: an administrator can let the user in again (wheelwork user disable --undo)", row.Name)
	}
	token, err := NewToken(x.By.Random)
	if err != nil {
		return nil, nil, "", err
	}
	opened, m := s.openSession(&apiv1.SessionRow{
		Principal: row.Name, Address: x.Address, Program: x.Program, Groups: s.groupsOf(x.Groups),
		LimitMs: x.By.Now.Add(federatedLongest).UnixMilli(),
	}, token, x.By.Now)
	return append(changes, opened...), m, token, nil
}

// ofProvider returns the user of a person at a provider; nil: the person has never signed in.
func (s *State) ofProvider(issuer, subject string) *apiv1.PrincipalRow {
	for _, row := range s.principals {
		if p := row.Provider; p != nil && p.Issuer == issuer && p.Subject == subject {
			return row
		}
	}
	return nil
}

// groupsOf returns at most maxGroupsOf groups, sorted within those that have bindings and the rest. A
// group whose name cannot have a binding gives nothing, so it is left out.
func (s *State) groupsOf(all []string) []string {
	var bound, other []string
	for _, name := range all {
		switch {
		case checkGroup(groupPrefix+name) != nil:
		case s.principals[groupPrefix+name] != nil:
			bound = append(bound, name)
		default:
			other = append(other, name)
		}
	}
	slices.Sort(bound)
	slices.Sort(other)
	both := append(slices.Compact(bound), slices.Compact(other)...)
	return both[:min(len(both), maxGroupsOf)]
}

// checkGroup returns an error if a text is not the name of the principal of a group.
func checkGroup(name string) error {
	group := strings.TrimPrefix(name, groupPrefix)
	if group == "" || len(group) > maxGroup || !utf8.ValidString(group) || strings.ContainsFunc(group, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.TrimSpace(group) != group {
		return invalid("the principal %.200q names no group: want %q and 1 to %d printable bytes, without spaces at the ends", name, groupPrefix, maxGroup)
	}
	return nil
}

// bindingsOfGroups returns the bindings of the groups of a session.
func (s *State) bindingsOfGroups(groups []string) (all Bindings) {
	for _, name := range groups {
		if row := s.principals[groupPrefix+name]; row != nil && !row.Disabled {
			all = append(all, bindingsOf(row)...)
		}
	}
	return all
}
