package console

import (
	"cmp"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

type machinesView struct {
	Machines []*apiv1.Certificate // the first pageSize, those that need attention before the others
	Total    int
	Tokens   []*apiv1.JoinToken // that can still be used
	Done     accessDone
	Refused  string // of the form
	Form     joinForm
}

// joinForm is the form that makes a join token, as the visitor filled it in.
type joinForm struct {
	Kind, Apps, Labels, Executors, TTL, Uses string
}

// Kinds returns the choices of the form.
func (joinForm) Kinds() []string { return []string{"host", "server"} }

// claims is what a certificate and a join token say about a machine.
type claims interface {
	GetApps() []string
	GetLabels() map[string]string
	GetExecutors() []string
}

// labelsOf returns labels as the command line writes them, sorted by name.
func labelsOf(m claims) []string { return pairsOf(m.GetLabels()) }

func pairsOf(labels map[string]string) []string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, name+"="+labels[name])
	}
	return pairs
}

// readPairs reads labels that pairsOf wrote. Spaces around a pair, and empty pairs, do not count.
func readPairs(pairs []string) (map[string]string, error) {
	var labels map[string]string
	for _, pair := range pairs {
		pair = strings.TrimSpace(pair)
		if pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, status.Errorf(codes.InvalidArgument, "labels: %.100q is not a label, write NAME=VALUE", pair)
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[name] = value
	}
	return labels, nil
}

// Labels returns the labels of a machine or a join token.
func (machinesView) Labels(m claims) []string { return labelsOf(m) }

// The states of a certificate, in the order of the list.
const (
	certificateEnded = "ended" // the machine is refused until it renews the certificate or joins again
	certificateEnds  = "ends"  // less than a fifth of its life is left, and a machine renews with a third left
	certificateValid = "valid"
	// certificateRevoked is of a server: a host that was revoked is not in the list.
	certificateRevoked = "revoked"
)

func certificateState(m *apiv1.Certificate, now time.Time) string {
	left, life := m.GetExpiresAt().AsTime().Sub(now), m.GetExpiresAt().AsTime().Sub(m.GetRenewedAt().AsTime())
	switch {
	case m.GetRevokedAt() != nil:
		return certificateRevoked
	case left <= 0:
		return certificateEnded
	case left < life/5:
		return certificateEnds
	}
	return certificateValid
}

// State returns the state of a certificate: ended, ends, valid or revoked.
func (machinesView) State(m *apiv1.Certificate) string { return certificateState(m, time.Now()) }

func (c *console) machinesPage(v *visit) error {
	return c.showMachines(v, http.StatusOK, machinesView{Form: joinForm{Kind: "host", Uses: "1"}})
}

func (c *console) showMachines(v *visit, code int, view machinesView) error {
	all, err := c.certificates(v)
	if err != nil {
		return err
	}
	now := time.Now()
	rank := func(m *apiv1.Certificate) int {
		return slices.Index([]string{certificateEnded, certificateEnds, certificateValid, certificateRevoked}, certificateState(m, now))
	}
	slices.SortStableFunc(all, func(a, b *apiv1.Certificate) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a.Name, b.Name))
	})
	view.Total = len(all)
	view.Machines = all[:min(view.Total, pageSize)]
	tokens, err := c.machines.ListJoinTokens(v.ctx, &apiv1.ListJoinTokensRequest{})
	if err != nil {
		return err
	}
	for _, t := range tokens.Tokens {
		if t.UsesLeft > 0 {
			view.Tokens = append(view.Tokens, t)
		}
	}
	view.Done, _ = noticeOf[accessDone](v)
	return c.showStatus(v, code, "machines", "access", view)
}

// certificates returns the machines that have joined.
func (c *console) certificates(v *visit) ([]*apiv1.Certificate, error) {
	answer, err := c.machines.ListCertificates(v.ctx, &apiv1.ListCertificatesRequest{})
	return answer.GetCertificates(), err
}

// machine returns the machine that the address names.
func (c *console) machine(v *visit) (*apiv1.Certificate, error) {
	all, err := c.certificates(v)
	if err != nil {
		return nil, err
	}
	id := v.r.PathValue("id")
	for _, m := range all {
		if m.Id == id {
			return m, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "no machine with a certificate has the id %.100q", id)
}

// request returns the call that the form asks for.
func (f joinForm) request() (*apiv1.CreateJoinTokenRequest, error) {
	labels, err := readPairs(listed(f.Labels))
	if err != nil {
		return nil, err
	}
	req := &apiv1.CreateJoinTokenRequest{Kind: f.Kind, Apps: listed(f.Apps), Labels: labels, Executors: listed(f.Executors), Ttl: f.TTL}
	uses, err := strconv.ParseInt(cmp.Or(f.Uses, "1"), 10, 32)
	if err != nil || uses < 1 {
		return nil, status.Errorf(codes.InvalidArgument, "uses: %.40q is not a number of machines, write 1 or more", f.Uses)
	}
	req.Uses = int32(uses)
	return req, nil
}

// listed returns the entries of a field, with commas or spaces between them.
func listed(field string) []string {
	return strings.FieldsFunc(field, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
}

func readJoinForm(f url.Values) joinForm {
	field := func(name string) string { return strings.TrimSpace(f.Get(name)) }
	return joinForm{field("kind"), field("apps"), field("labels"), field("executors"), field("ttl"), field("uses")}
}

func (c *console) createJoinToken(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	form := readJoinForm(v.r.PostForm)
	req, err := form.request()
	var made *apiv1.JoinToken
	if err == nil {
		made, err = c.machines.CreateJoinToken(v.ctx, req)
	}
	if why, ok := mendable(err); ok {
		return c.showMachines(v, http.StatusUnprocessableEntity, machinesView{Form: form, Refused: why})
	}
	if err != nil {
		return err
	}
	view := secretView{Tab: "machines", Title: "join.created", Hint: "join.hint." + made.Kind, Subject: made.Id, Secret: made.Token, Join: made, Labels: labelsOf(made)}
	view.Command = "wheelwork host --server " + c.serverAddress(v.r) + " --join-token " + made.Token
	if made.Kind == "server" {
		view.Command = "wheelwork server --cluster --listen HOST:7700 --cluster-listen HOST:2379 --cluster-peer HOST:2380 --join-server " + c.serverAddress(v.r) + " --join-token " + made.Token
	}
	return c.showSecret(v, view)
}

// serverAddress returns where a machine reaches the server that the visitor has called.
func (c *console) serverAddress(r *http.Request) string {
	if _, _, err := net.SplitHostPort(r.Host); err == nil {
		return r.Host
	}
	if c.secure {
		return r.Host + ":443"
	}
	return r.Host + ":80"
}

func (c *console) revokeJoinTokenPage(v *visit) error {
	return c.show(v, "confirm", "access", confirmView{
		Question: "join.revoke.question", Effect: "join.revoke.effect", Button: "join.revoke.button",
		Subject: v.r.PathValue("id"), Back: inApp("/access/machines", v.app),
	})
}

func (c *console) revokeJoinToken(v *visit) error {
	id := v.r.PathValue("id")
	if _, err := c.machines.RevokeJoinToken(v.ctx, &apiv1.RevokeJoinTokenRequest{Id: id}); err != nil {
		return err
	}
	return c.toMachines(v, "join.revoked", id)
}

// toMachines leads back to the list, with the notice of a change.
func (c *console) toMachines(v *visit, done, subject string) error {
	v.redirectWith(inApp("/access/machines", v.app), accessDone{done, subject})
	return nil
}

type renameView struct {
	*apiv1.Certificate
	Title, Refused string // Title is the name in the form
}

func (c *console) renameMachinePage(v *visit) error {
	m, err := c.machine(v)
	if err != nil {
		return err
	}
	return c.show(v, "rename", "access", renameView{Certificate: m, Title: m.Name})
}

func (c *console) renameMachine(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	m, err := c.machine(v)
	if err != nil {
		return err
	}
	name := strings.TrimSpace(v.r.PostForm.Get("name"))
	_, err = c.machines.RenameMachine(v.ctx, &apiv1.RenameMachineRequest{Id: m.Id, Name: name})
	if why, ok := mendable(err); ok {
		return c.showStatus(v, http.StatusUnprocessableEntity, "rename", "access", renameView{m, name, why})
	}
	if err != nil {
		return err
	}
	return c.toMachines(v, "machine.renamed", name)
}

func (c *console) revokeMachinePage(v *visit) error {
	m, err := c.machine(v)
	if err != nil {
		return err
	}
	effect := "machine.revoke.effect.host"
	if m.Kind == "server" {
		effect = "machine.revoke.effect.server"
	}
	return c.show(v, "confirm", "access", confirmView{
		Question: "machine.revoke.question", Effect: effect, Button: "machine.revoke.button",
		Subject: m.Name + " · " + m.Id, Back: inApp("/access/machines", v.app),
	})
}

func (c *console) revokeMachine(v *visit) error {
	m, err := c.machine(v) // by its id alone: the API also takes a name, which may have changed hands
	if err != nil {
		return err
	}
	if _, err := c.machines.RevokeCertificate(v.ctx, &apiv1.RevokeCertificateRequest{Id: m.Id, Kind: m.Kind}); err != nil {
		return err
	}
	return c.toMachines(v, "machine.revoked", m.Name)
}
