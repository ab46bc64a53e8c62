package access

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// The names of the principals of tokens in files of the server.
const (
	legacyAdmin  = "legacy-admin"
	legacyHost   = "legacy-host"
	legacyServer = "legacy-server"
)

// ownPrefix begins the tokens that a process makes for calls to itself. They are in no file, and end with it.
const ownPrefix = "in_"

// builtIns returns the principals whose tokens in files this server accepts now, by name, as the API shows
// them.
func (g *Guard) builtIns() []*apiv1.Principal {
	g.change.Lock()
	files := g.files
	g.change.Unlock()
	byName := map[string]*apiv1.Principal{}
	var all []*apiv1.Principal
	for _, t := range files {
		if t.Text == "" || strings.HasPrefix(t.Text, ownPrefix) {
			continue
		}
		p := builtIn(t.Role)
		m := byName[p.Name]
		if m == nil {
			m = &apiv1.Principal{Principal: p.Name, Kind: p.Kind, BuiltIn: true}
			byName[p.Name], all = m, append(all, m)
		}
		for _, b := range p.bindings() { // several files may give one role
			if !slices.ContainsFunc(m.Bindings, func(had *apiv1.Binding) bool { return had.Role == b.Role }) {
				m.Bindings = append(m.Bindings, b)
			}
		}
	}
	slices.SortFunc(all, inOrder)
	return all
}

func inOrder(a, b *apiv1.Principal) int { return cmp.Compare(a.Principal, b.Principal) }

// listed returns a list of principals with the built-in ones of this server, if a caller may see the access
// to the cluster. Those of a server that has passed the list on are left out.
func (g *Guard) listed(p *Principal, list *apiv1.ListPrincipalsResponse) *apiv1.ListPrincipalsResponse {
	all := slices.DeleteFunc(slices.Clone(list.Principals), func(m *apiv1.Principal) bool { return m.BuiltIn })
	if p.May("access.read", "") {
		all = append(all, g.builtIns()...)
		slices.SortStableFunc(all, inOrder)
	}
	return &apiv1.ListPrincipalsResponse{Principals: all}
}

// RefuseBuiltIn returns an error that says how to end the access of a built-in principal; nil: the name is
// another one.
func RefuseBuiltIn(name string) error {
	how := ""
	switch name {
	case legacyAdmin:
		how = "the token is in the file token of the data directory: start the server with --legacy-tokens off to refuse it"
	case legacyHost:
		how = "its tokens are in the file host-token of the data directory and in that of --token-file: replace the contents, or remove the file host-token and start the server again, which makes another one"
	case legacyServer:
		how = "the token is in the file of --server-token-file, or in that of --token-file: replace the content, or remove the file together with the flag"
	default:
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "%s is built in, and has no state that could change: %s", name, how)
}
