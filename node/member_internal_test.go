package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestMemberAdvertises: a member is known by the addresses at which others reach it, and
// listens at its own.
func TestMemberAdvertises(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	c := ClusterConfig{
		On: true, Listen: "127.0.0.1:7711", Peer: "127.0.0.1:7721", Advertise: "127.0.0.1:8711", PeerAdvertise: "127.0.0.1:8721",
		Join: []string{"127.0.0.1:8711", "127.0.0.1:8712"},
	}
	m, err := memberConfig(&ServerConfig{Cluster: c}, "dir", log)
	if err != nil {
		t.Fatal(err)
	}
	if m.Client != "http://127.0.0.1:8711" || m.Peer != "http://127.0.0.1:8721" || m.ListenClient != "http://127.0.0.1:7711" || m.ListenPeer != "http://127.0.0.1:7721" {
		t.Errorf("others reach it at %s and %s, and it listens at %s and %s", m.Client, m.Peer, m.ListenClient, m.ListenPeer)
	}
	if len(m.Join) != 1 || m.Join[0] != "http://127.0.0.1:8712" {
		t.Errorf("it joins %q, want the others", m.Join)
	}
	c.Join, c.Members = nil, []string{"127.0.0.1:8721", "127.0.0.1:8722"}
	if m, err = memberConfig(&ServerConfig{Cluster: c}, "dir", log); err != nil || m.Members[m.Name] != m.Peer {
		t.Errorf("the members are %v, and it is %s: %v", m.Members, m.Name, err)
	}
	c.Members = []string{"127.0.0.1:7721"}
	if _, err := memberConfig(&ServerConfig{Cluster: c}, "dir", log); err == nil || !strings.Contains(err.Error(), "127.0.0.1:8721") {
		t.Errorf("the members do not include what it advertises: %v", err)
	}
	c.Members, c.PeerAdvertise = nil, "127.0.0.1"
	if _, err := memberConfig(&ServerConfig{Cluster: c}, "dir", log); err == nil || !strings.Contains(err.Error(), "--cluster-peer-advertise") {
		t.Errorf("an address without a port: %v", err)
	}
	plain := ClusterConfig{On: true, Listen: "127.0.0.1:7711", Peer: "127.0.0.1:7721"}
	if m, err := memberConfig(&ServerConfig{Cluster: plain}, "dir", log); err != nil || m.Client != m.ListenClient || m.Peer != m.ListenPeer || m.Name != memberName(plain.Peer) {
		t.Errorf("without a proxy: %+v, %v", m, err)
	}
}

// TestEtcdWithoutAnswer: the error names the flags with the addresses. It is no longer a
// deadline error, for which commands advise a longer --timeout.
func TestEtcdWithoutAnswer(t *testing.T) {
	err := withoutAnswer(fmt.Errorf("ask: %w", context.DeadlineExceeded), []string{"http://10.0.0.1:2379"})
	if errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "etcd at http://10.0.0.1:2379 did not answer in time: ") || !strings.Contains(err.Error(), "--cluster-advertise") {
		t.Errorf("got %v", err)
	}
	other := errors.New("refused")
	if got := withoutAnswer(other, nil); got != other {
		t.Errorf("got %v, want %v", got, other)
	}
	if got := withoutAnswer(nil, nil); got != nil {
		t.Errorf("got %v, want nil", got)
	}
}
