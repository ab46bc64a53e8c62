package etcd

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Access is the access to etcd of a client that has no journal in it.
type Access struct {
	Endpoints []string    // as URLs; at least one
	TLS       *tls.Config // nil: none
}

func (a Access) client() (*clientv3.Client, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: a.Endpoints, TLS: a.TLS, DialTimeout: 5 * time.Second, Logger: bridge(slog.New(slog.DiscardHandler))})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(a.Endpoints, ", "), err)
	}
	return c, nil
}

// MemberState is the known state of an etcd member.
type MemberState struct {
	Name   string // id of the server that the member runs in; "": it was added and never started
	Peer   string // URL at which the other members reach it
	Client string // URL at which servers reach it; "" if it was never started
	State  string // leader, follower, learner (without a vote), absent (does not answer)
	Bytes  int64  // size of its database
	Error  string // why it is absent, or its alarms
}

// Members lists the members of etcd, by name. It needs a majority of them.
func Members(ctx context.Context, at Access) ([]MemberState, error) {
	client, err := at.client()
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // nothing is under way
	list, err := client.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask etcd at %s for its members: %w", strings.Join(at.Endpoints, ", "), err)
	}
	var all []MemberState
	for _, m := range list.Members {
		s := MemberState{Name: m.Name, State: "absent"}
		if len(m.PeerURLs) > 0 {
			s.Peer = m.PeerURLs[0]
		}
		if len(m.ClientURLs) > 0 {
			s.Client = m.ClientURLs[0]
			s.ask(ctx, client)
		} else {
			s.Error = "it was added and has never started"
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b MemberState) int { return strings.Compare(a.Name+a.Peer, b.Name+b.Peer) })
	return all, nil
}

func (s *MemberState) ask(ctx context.Context, client *clientv3.Client) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	st, err := client.Status(ctx, s.Client)
	if err != nil {
		s.Error = err.Error()
		return
	}
	s.Bytes, s.Error = st.DbSize, strings.Join(st.Errors, ", ")
	switch {
	case st.IsLearner:
		s.State = "learner"
	case st.Leader == st.Header.MemberId:
		s.State = "leader"
	default:
		s.State = "follower"
	}
}

// RemoveMember removes a member that is lost for good from etcd. name is the id of its
// server or the peer URL of the member. A member that answers is not removed: its server
// would continue without a journal.
func RemoveMember(ctx context.Context, at Access, name string) error {
	client, err := at.client()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // nothing is under way
	list, err := client.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("ask etcd at %s for its members: %w", strings.Join(at.Endpoints, ", "), err)
	}
	for _, m := range list.Members {
		if m.Name != name && !slices.Contains(m.PeerURLs, name) {
			continue
		}
		if len(m.ClientURLs) > 0 {
			s := MemberState{Client: m.ClientURLs[0], State: "absent"}
			if s.ask(ctx, client); s.State != "absent" {
				return fmt.Errorf("the member %s answers at %s: stop its server first", name, s.Client)
			}
		}
		err := patiently(ctx, func(ctx context.Context) error {
			_, err := client.MemberRemove(ctx, m.ID)
			return err
		})
		if err != nil {
			return fmt.Errorf("take %s out of etcd: %w", name, err)
		}
		return nil
	}
	return fmt.Errorf("etcd has no member %s: `wheelwork cluster members` lists them", name)
}
