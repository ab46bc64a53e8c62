package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// healthPages returns the page of the checks, with texts that it must contain.
func healthPages() map[string][]string {
	return map[string][]string{"/health": {
		"etcd has not answered &lt;for&gt; 1s", "Partitions have no owner", "main.2", "Hosts are lost", "node-2", "no space left &lt;on&gt; device", "The disk has little room left. Used: 81 %",
		"Accepted commands that could not be carried out: 2", "Certificates are near their end", "All servers and hosts have the same version", "The server is ready.", "v0.1.0-test",
	}}
}

// well returns the answers of an installation without trouble.
func well(now time.Time) *found {
	return &found{
		ready:   &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING},
		cluster: &apiv1.ClusterStatus{Name: "main", Balancer: "a", Servers: []*apiv1.Member{{Id: "a", State: "up", Version: "v1"}, {Id: "b", State: "up", Version: "v1"}}, Units: []*apiv1.Unit{{Name: "main", State: "owned", Standbys: []string{"b"}}}},
		hosts:   &apiv1.ListHostsResponse{Hosts: []*apiv1.Host{{Id: "h", State: "up", Version: "v1"}}},
		overview: &apiv1.Overview{
			Writable: true, ServerTime: timestamppb.New(now), Disk: &apiv1.Disk{TotalBytes: 100, FreeBytes: 60},
		},
		queues:   &apiv1.GetQueuesResponse{Logs: []*apiv1.LogStats{{Name: "journal"}}, DiskMark: "ok"},
		machines: &apiv1.ListCertificatesResponse{},
		backups:  backupsOf(now),
		asked:    now, answered: now,
	}
}

// TestHealthChecks breaks one thing at a time: one check finds it, and the others stay good.
func TestHealthChecks(t *testing.T) {
	now := time.Now()
	certificate := func(left time.Duration) *apiv1.Certificate {
		return &apiv1.Certificate{Id: "host-1", Kind: "host", RenewedAt: timestamppb.New(now.Add(left - 24*time.Hour)), ExpiresAt: timestamppb.New(now.Add(left))}
	}
	for name, c := range map[string]struct {
		breaks    func(*found)
		key, want string // of the finding
	}{
		"ready":            {func(f *found) { f.ready.Status = grpc_health_v1.HealthCheckResponse_NOT_SERVING }, "health.ready.bad", healthBad},
		"no answer":        {func(f *found) { f.noReady = status.Error(codes.Unavailable, "gone") }, "health.noanswer", healthBad},
		"no permission":    {func(f *found) { f.noMachines = status.Error(codes.PermissionDenied, "no") }, "health.hidden", healthBlind},
		"trouble":          {func(f *found) { f.cluster.Trouble = "etcd" }, "health.servers.trouble", healthBad},
		"lost server":      {func(f *found) { f.cluster.Servers[1].State = "lost" }, "health.servers.lost", healthBad},
		"drained server":   {func(f *found) { f.cluster.Servers[1].State = "drained" }, "health.servers.drained", healthWarn},
		"no balancer":      {func(f *found) { f.cluster.Balancer = "" }, "health.servers.balancer", healthWarn},
		"free partition":   {func(f *found) { f.cluster.Units[0].State = "free" }, "health.partitions.free", healthBad},
		"moving partition": {func(f *found) { f.cluster.Units[0].State = "moving" }, "health.partitions.moving", healthWarn},
		"no standby":       {func(f *found) { f.cluster.Units[0].Standbys = nil }, "health.partitions.single", healthWarn},
		"split":            {func(f *found) { f.cluster.Split = []*apiv1.SplitApp{{App: "shop", Trouble: "no room"}} }, "health.partitions.split", healthWarn},
		"lost host": {func(f *found) {
			f.hosts.Hosts = append(f.hosts.Hosts, &apiv1.Host{Id: "x", State: "lost", Version: "v0"})
		}, "health.hosts.lost", healthWarn},
		"no host":           {func(f *found) { f.hosts.Hosts = nil }, "health.hosts.none", healthBad},
		"cordoned host":     {func(f *found) { f.hosts.Hosts = append(f.hosts.Hosts, &apiv1.Host{Id: "x", State: "cordoned"}) }, "health.hosts.cordoned", healthWarn},
		"not writable":      {func(f *found) { f.overview.Writable = false }, "health.writes.bad", healthBad},
		"disk warns":        {func(f *found) { f.queues.DiskMark = "warn" }, "health.disk.warn", healthWarn},
		"disk early":        {func(f *found) { f.queues.DiskMark = "early" }, "health.disk.early", healthWarn},
		"disk refuses":      {func(f *found) { f.queues.DiskMark = "refuse" }, "health.disk.bad", healthBad},
		"disk by its share": {func(f *found) { f.queues.DiskMark, f.overview.Disk.FreeBytes = "", 12 }, "health.disk.warn", healthWarn},
		"full by its share": {func(f *found) { f.queues.DiskMark, f.overview.Disk.FreeBytes = "", 5 }, "health.disk.bad", healthBad},
		"clock behind":      {func(f *found) { f.overview.ServerTime = timestamppb.New(now.Add(-2 * time.Second)) }, "health.clock.off", healthWarn},
		"clock ahead":       {func(f *found) { f.overview.ServerTime = timestamppb.New(now.Add(6 * time.Second)) }, "health.clock.off", healthBad},
		"no clock":          {func(f *found) { f.overview.ServerTime = nil }, "health.clock.unknown", healthBlind},
		"read-only log":     {func(f *found) { f.queues.Logs[0].Error = "EIO" }, "health.logs.readonly", healthBad},
		"damaged log":       {func(f *found) { f.queues.Logs[0].Damaged = 1 }, "health.logs.damaged", healthBad},
		"lost messages":     {func(f *found) { f.queues.LostUnconsumed = 4 }, "health.logs.lost", healthBad},
		"dead letters":      {func(f *found) { f.queues.DeadLetters = 2 }, "health.letters.some", healthWarn},
		"certificate ends":  {func(f *found) { f.machines.Certificates = []*apiv1.Certificate{certificate(time.Hour)} }, "health.certificates.ends", healthWarn},
		"certificate ended": {func(f *found) { f.machines.Certificates = []*apiv1.Certificate{certificate(-time.Hour)} }, "health.certificates.ended", healthBad},
		"failed backup":     {func(f *found) { f.backups.Error = "no room" }, "health.backups.failed", healthBad},
		"overdue backup":    {func(f *found) { f.backups.Overdue = true }, "health.backups.overdue", healthBad},
		"no backup yet":     {func(f *found) { f.backups.Last, f.backups.Drill = nil, nil }, "health.backups.first", healthWarn},
		"no drill":          {func(f *found) { f.backups.Drill.Result = "read" }, "health.backups.untried", healthWarn},
		"versions":          {func(f *found) { f.hosts.Hosts[0].Version = "v2" }, "health.versions.mixed", healthWarn},
	} {
		t.Run(name, func(t *testing.T) {
			f := well(now)
			for _, k := range f.checks("default", now) {
				if k.Result != healthGood {
					t.Fatalf("without trouble: %+v", k)
				}
			}
			c.breaks(f)
			var keys []string
			for _, k := range f.checks("default", now) {
				if k.Result != healthGood {
					keys = append(keys, k.Key+" "+k.Result)
				}
			}
			if want := c.key + " " + c.want; strings.Join(keys, ";") != want {
				t.Errorf("found %q, want %q", keys, want)
			}
		})
	}
}

// TestHealthOfOneServer: a server without a cluster needs no standby and no balancer.
func TestHealthOfOneServer(t *testing.T) {
	now := time.Now()
	f := well(now)
	f.cluster = &apiv1.ClusterStatus{Servers: []*apiv1.Member{{Id: "a", State: "up", Version: "v1"}}}
	for _, k := range f.checks("default", now) {
		if k.Result != healthGood {
			t.Errorf("%+v", k)
		}
	}
}

// TestHealthNamesFew: a finding about many objects names the first.
func TestHealthNamesFew(t *testing.T) {
	k := finding{}.about(make([]string, namedInCheck+7))
	if len(k.Named) != namedInCheck || k.More != 7 {
		t.Errorf("%d are named, %d are not", len(k.Named), k.More)
	}
}

// TestHealthWithoutPermissions: the page says which checks the visitor may not see.
func TestHealthWithoutPermissions(t *testing.T) {
	s := newSite(t, newFake().populate())
	s.fake.denied = "queues.read"
	s.signIn(t)
	resp, body := s.do(t, "GET", "/health", nil)
	if n := strings.Count(body, "You do not have the permission to see this."); resp.StatusCode != http.StatusOK || n != 3 {
		t.Errorf("%s, %d checks are hidden, want 3", resp.Status, n)
	}
	checkPage(t, body)
	s.fake.change(func() { s.fake.revoked = true })
	if resp, _ := s.do(t, "GET", "/health", nil); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("with a revoked token: %s", resp.Status)
	}
}
