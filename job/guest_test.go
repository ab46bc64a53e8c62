package job

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// rowStore has small rows by key.
type rowStore map[string][]byte

// keep writes the rows in the effects. It returns the runs that have ended.
func (s rowStore) keep(t interface{ Fatal(...any) }, fx []Effect) (ended []*Run) {
	for _, e := range fx {
		switch {
		case e.Change == RowChanged && e.Row.Value == nil:
			delete(s, e.Row.Key)
		case e.Change == RowChanged:
			b, err := proto.Marshal(e.Row.Value)
			if err != nil {
				t.Fatal(err)
			}
			s[e.Row.Key] = b
		case e.Change == RunEnded:
			ended = append(ended, e.Run)
		}
	}
	return ended
}

// load restores rows in a slot whose runs are loaded, as a server does at its start.
func (s rowStore) load(t interface{ Fatalf(string, ...any) }, into *Slot) (orphans int) {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		kind, rest, _ := strings.Cut(key, "/")
		_, rest, _ = strings.Cut(rest, "/")
		if slot, ours, err := SlotOfRow(kind, rest); err != nil || !ours || slot != into.Index {
			t.Fatalf("row %q is of slot %d: %v, %v", key, slot, ours, err)
		}
		orphan, err := into.LoadRow(kind, rest, s[key])
		if err != nil {
			t.Fatalf("row %q: %v", key, err)
		}
		if orphan {
			orphans++
		}
	}
	return orphans
}

// inSlot returns n keys of values in one slot.
func inSlot(bucket string, index uint8, n int) []string {
	var keys []string
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprint("k", i); SlotOfValue(bucket, key) == index {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestValuesFold compares the values of a slot with a map, and with a slot that is
// restored from the rows.
func TestValuesFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, rows, want := NewSlot("app", 3), rowStore{}, map[string]string{}
		keys := append(inSlot("a", 3, 3), inSlot("b", 3, 3)...)
		given := map[uint64]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "records") {
			i := rapid.IntRange(0, 5).Draw(t, "key")
			bucket, key := []string{"a", "b"}[i/3], keys[i]
			name := bucket + "/" + key
			rec := &apiv1.Record{AtMs: 5}
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				rec.Kind = &apiv1.Record_ValueDelete{ValueDelete: &apiv1.ValueDelete{Bucket: bucket, Key: key}}
				delete(want, name)
			case 1: // a restart
				again := NewSlot("app", 3)
				rows.load(t, again)
				s = again
				continue
			default:
				value := rapid.StringN(0, 10, 20).Draw(t, "value")
				grows := s.GrowsBy(bucket, key, []byte(value))
				before, version := s.ValueBytes(), s.NextVersion()
				if version == 0 || given[version] {
					t.Fatalf("version %d is given twice, or is none", version)
				}
				given[version] = true
				rec.Kind = &apiv1.Record_ValuePut{ValuePut: &apiv1.ValuePut{Bucket: bucket, Key: key, Row: &apiv1.ValueRow{Value: []byte(value), Version: version}}}
				rows.keep(t, s.Apply(rec, nil))
				if s.ValueBytes() != before+grows {
					t.Fatalf("a put was to grow by %d: %d after %d", grows, s.ValueBytes(), before)
				}
				want[name] = value
				continue
			}
			rows.keep(t, s.Apply(rec, nil))
		}
		size, entries := int64(0), map[string]int64{}
		for name, value := range want {
			bucket, key, _ := strings.Cut(name, "/")
			size += int64(len(name) - 1 + len(value))
			entries[bucket]++
			if row := s.Value(bucket, key); row == nil || string(row.Value) != value {
				t.Fatalf("%s is %v, want %q", name, row, value)
			}
		}
		if s.ValueBytes() != size || len(s.guests.values) != len(want) {
			t.Fatalf("%d bytes in %d values, want %d in %d", s.ValueBytes(), len(s.guests.values), size, len(want))
		}
		got := map[string]int64{}
		total := int64(0)
		s.Buckets(func(name string, b Bucket) { got[name] = b.Entries; total += b.Bytes })
		if !maps.Equal(got, entries) || total != size {
			t.Fatalf("buckets %v of %d bytes, want %v of %d", got, total, entries, size)
		}
	})
}

func TestSwap(t *testing.T) {
	seven := &apiv1.ValueRow{Version: 7}
	for _, tt := range []struct {
		row    *apiv1.ValueRow
		expect *uint64
		want   bool
	}{
		{nil, nil, true},
		{seven, nil, true},
		{nil, proto.Uint64(0), true},
		{seven, proto.Uint64(0), false},
		{seven, proto.Uint64(7), true},
		{seven, proto.Uint64(6), false},
		{nil, proto.Uint64(7), false},
	} {
		if got := Swap(tt.row, tt.expect); got != tt.want {
			t.Errorf("%v may be replaced, expecting %v: %v", tt.row, tt.expect, got)
		}
	}
}

func TestCheckKey(t *testing.T) {
	for _, tt := range []struct {
		bucket, key string
		ok          bool
	}{
		{"b", "k", true},
		{"b", "a/b c.é世", true},
		{"b", strings.Repeat("k", MaxKey), true},
		{"b", strings.Repeat("k", MaxKey+1), false},
		{"b", "", false},
		{"", "k", false},
		{"a/b", "k", false},
		{strings.Repeat("b", 129), "k", false},
		{"b", "a\x00b", false},
		{"b", "a\nb", false},
		{"b", "\xff", false},
		{"b", "\u202e", false}, // right-to-left override
	} {
		if err := CheckKey(tt.bucket, tt.key); (err == nil) != tt.ok {
			t.Errorf("%.20q/%.20q: %v", tt.bucket, tt.key, err)
		}
	}
}

func TestCheckGrants(t *testing.T) {
	http := func(host string) *apiv1.Grants { return &apiv1.Grants{Http: []*apiv1.HttpGrant{{Host: host}}} }
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprint("s", i)
	}
	for name, tt := range map[string]struct {
		g    *apiv1.Grants
		want string // part of the error; "": none
	}{
		"nothing":       {nil, ""},
		"host":          {http("API.example.com"), ""},
		"any below":     {http("*.example.com:8443"), ""},
		"address":       {http("[::1]:80"), ""},
		"no host":       {http(""), "not a host"},
		"bare address":  {http("::1"), "not a host"},
		"any":           {http("*"), "not a host"},
		"inner star":    {http("api.*.com"), "not a host"},
		"address of it": {http("https://example.com"), "not a host"},
		"with a path":   {http("example.com/x"), "not a host"},
		"port":          {http("example.com:0"), "not a port"},
		"large port":    {http("example.com:70000"), "not a port"},
		"method":        {&apiv1.Grants{Http: []*apiv1.HttpGrant{{Host: "h", Methods: []string{"GET /"}}}}, "not a method"},
		"path":          {&apiv1.Grants{Http: []*apiv1.HttpGrant{{Host: "h", Paths: []string{"v1"}}}}, "slash"},
		"bucket":        {&apiv1.Grants{Kv: []*apiv1.BucketGrant{{Name: "a/b"}}}, "bucket"},
		"secret":        {&apiv1.Grants{Secrets: []string{"a b"}}, "secret"},
		"secrets":       {&apiv1.Grants{Secrets: many}, "the limit is 100"},
		"target":        {&apiv1.Grants{Enqueue: []string{"a/b/c"}}, "job"},
		"star of app":   {&apiv1.Grants{Enqueue: []string{"a/*"}}, "job"},
		"targets":       {&apiv1.Grants{Enqueue: []string{"*", "j", "a/j"}}, ""},
		"mount":         {&apiv1.Grants{Files: []*apiv1.FileGrant{{Mount: ""}}}, "not a path"},
		"mounts":        {&apiv1.Grants{Files: []*apiv1.FileGrant{{Mount: "/"}, {Mount: "."}, {Mount: "data/in"}}}, ""},
		"mount above":   {&apiv1.Grants{Files: []*apiv1.FileGrant{{Mount: "/a/../b"}}}, "not a path"},
		"quota":         {&apiv1.Grants{Files: []*apiv1.FileGrant{{Mount: "/a", Bytes: -1}}}, "negative"},
		"directory":     {&apiv1.Grants{Files: []*apiv1.FileGrant{{Mount: "/a", Dir: "../x"}}}, "directory"},
	} {
		err := CheckGrants(tt.g)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	g := &apiv1.Grants{Secrets: []string{"b", "a", "b"}, Http: []*apiv1.HttpGrant{{Host: "H", Methods: []string{"put", "get", "PUT"}}}}
	if err := CheckGrants(g); err != nil || !slices.Equal(g.Secrets, []string{"a", "b"}) || !slices.Equal(g.Http[0].Methods, []string{"GET", "PUT"}) || g.Http[0].Host != "h" {
		t.Errorf("in order: %v, %v", g, err)
	}
}

// mapped is a random history of one run that maps.
type mapped struct {
	t      *rapid.T
	s      *Slot
	root   RunID
	nowMs  int64
	window int32

	// For a run that continues an earlier run with base parts, of which again run again.
	// base is 0 for a new run.
	base, again int32
}

// resumed returns the record by which a run continues an earlier one.
func (m *mapped) resumed() *apiv1.Resumed {
	rec := &apiv1.Resumed{Run: m.root[:], Parts: m.base}
	for i := range m.again {
		if rec.Inputs == nil {
			rec.Inputs = &apiv1.MapChunk{}
		}
		text := strings.Repeat("y", int(i))
		rec.Inputs.Parts = append(rec.Inputs.Parts, &apiv1.MapPart{Number: m.base - 1 - i, Depth: i, Mapped: i})
		rec.Inputs.Sizes = append(rec.Inputs.Sizes, uint32(len(text)))
		rec.Inputs.Data = append(rec.Inputs.Data, text...)
	}
	for n := range m.base - m.again {
		if n%3 == 0 {
			rec.Outputs = append(rec.Outputs, &apiv1.MapOutputs{})
		}
		c := rec.Outputs[len(rec.Outputs)-1]
		c.Outputs = append(c.Outputs, &apiv1.MapOutputs_Output{Part: n, Output: fmt.Append(nil, n)})
	}
	return rec
}

func newMapped(t *rapid.T, reduce bool) *mapped {
	m := &mapped{t: t, s: NewSlot("app", SlotOf("j")), nowMs: 1_700_000_000_000, window: rapid.Int32Range(1, 5).Draw(t, "window")}
	mode := "map"
	if reduce {
		mode = "map_reduce"
	}
	m.root = OccurrenceID("app", "j", time.UnixMilli(m.nowMs), "")
	if rapid.Bool().Draw(t, "goes on") {
		m.base = rapid.Int32Range(1, 9).Draw(t, "base")
		m.again = rapid.Int32Range(0, m.base).Draw(t, "again")
	}
	return m.with(&apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{
		App: "app", Name: "j", Handler: &apiv1.Handler{Module: "m@1", Name: "main"}, Retry: &apiv1.Retry{Max: 3},
		Fanout: &apiv1.Fanout{Mode: mode}, Revision: 1, CreatedAt: timestamppb.New(time.UnixMilli(m.nowMs)),
	}}})
}

// with applies the record of a job and returns m.
func (m *mapped) with(k *apiv1.Record_JobPut) *mapped {
	m.s.Apply(&apiv1.Record{AtMs: m.nowMs, Kind: k}, nil)
	return m
}

// next draws the next record of the run. Some records do not fit the state.
func (m *mapped) next() *apiv1.Record {
	t, s := m.t, m.s
	rec := &apiv1.Record{AtMs: m.nowMs}
	parent := s.Runs.Get(m.root)
	if parent == nil {
		rec.Kind = &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: m.root[:], Job: "j", HasInput: true, Input: []byte("in")}}
		return rec
	}
	if m.base > 0 && parent.Fan == nil {
		r := m.resumed()
		if rapid.IntRange(0, 9).Draw(t, "broken") == 0 && r.Inputs != nil {
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				r.Inputs.Sizes[0]++
			case 1:
				r.Inputs.Parts = r.Inputs.Parts[1:]
			case 2:
				r.Parts = m.again - 1
			}
		}
		rec.Kind = &apiv1.Record_Resumed{Resumed: r}
		return rec
	}
	if !parent.HasParts() {
		rec.Kind = &apiv1.Record_Fanned{Fanned: &apiv1.Fanned{Run: m.root[:], Parts: 1, Window: m.window}}
		return rec
	}
	parts := parent.Fan.inOrder()
	r := rapid.SampledFrom(parts).Draw(t, "part")
	switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
	case r.State != Running:
		rec.Kind = &apiv1.Record_Started{Started: &apiv1.Started{Host: "h", Session: "s", Runs: []*apiv1.Started_Run{{Run: r.ID[:], Attempt: r.Attempt + 1}}}}
	case kind < 4:
		n := rapid.IntRange(1, 7).Draw(t, "inputs")
		in := &apiv1.MapChunk{First: parent.Fan.Made, Depth: r.Fan.Depth + 1}
		for i := range n {
			text := strings.Repeat("x", i)
			in.Sizes = append(in.Sizes, uint32(len(text)))
			in.Data = append(in.Data, text...)
		}
		switch rapid.IntRange(0, 9).Draw(t, "broken") {
		case 0:
			in.Sizes[0] += 1000
		case 1:
			in.Data = append(in.Data, 1)
		case 2:
			in.First++
		}
		first := r.Fan.Mapped - rapid.Int32Range(0, 1).Draw(t, "again")
		rec.Kind = &apiv1.Record_Mapped{Mapped: &apiv1.Mapped{Part: r.ID[:], First: first, Chunk: parent.Fan.Map.NextChunk(), Inputs: in}}
	case kind == 4:
		rec.Kind = &apiv1.Record_Checkpointed{Checkpointed: &apiv1.Checkpointed{Run: r.ID[:], Attempt: r.Attempt, Data: []byte(r.ID.String())}}
	case kind == 5 && rapid.IntRange(0, 9).Draw(t, "cancel") == 0:
		rec.Kind = &apiv1.Record_CancelRequested{CancelRequested: &apiv1.CancelRequested{Run: m.root[:]}}
	default:
		o := rapid.SampledFrom([]apiv1.Outcome{1, 1, 1, 1, 2, 3, 5, 7}).Draw(t, "outcome")
		v := Settle(r, o, 0)
		e := &apiv1.Finished_End{Run: r.ID[:], Attempt: r.Attempt, Host: "h", Outcome: o, State: string(v.State), RetryMs: m.nowMs, Output: fmt.Append(nil, r.Fan.Part)}
		rec.Kind = &apiv1.Record_Finished{Finished: &apiv1.Finished{Ends: []*apiv1.Finished_End{e}}}
	}
	return rec
}

// fits reports whether a server would write a record.
func (m *mapped) fits(rec *apiv1.Record) bool {
	if k, ok := rec.Kind.(*apiv1.Record_Resumed); ok {
		return proto.Equal(k.Resumed, m.resumed())
	}
	k, ok := rec.Kind.(*apiv1.Record_Mapped)
	if !ok {
		return true
	}
	part, in := m.s.Runs.Get(runID(k.Mapped.Part)), k.Mapped.Inputs
	size := 0
	for _, n := range in.Sizes {
		size += int(n)
	}
	return size == len(in.Data) && k.Mapped.First == part.Fan.Mapped && in.First == m.s.Runs.Get(m.root).Fan.Made && !m.s.Runs.Get(m.root).CancelRequested && !part.Fan.Reduce
}

// check checks the invariants of a run that maps.
func (m *mapped) check(ended map[int32]State) {
	t, s := m.t, m.s
	parent := s.Runs.Get(m.root)
	if parent == nil || !parent.HasParts() {
		return
	}
	f := parent.Fan
	waiting, bytes := parent.Waiting()
	n, size := int32(0), int64(0)
	for _, c := range slices.Concat(f.Map.chunks, f.Map.retries) {
		n += int32(len(c.Sizes) - c.next)
		size += int64(len(c.Data) - c.at)
	}
	if n != waiting || size != bytes {
		t.Fatalf("%d parts of %d bytes wait, the chunks have %d of %d", waiting, bytes, n, size)
	}
	if got := f.Succeeded + f.Failed + int32(len(f.parts)) + waiting; got != f.Made && !parent.CancelRequested {
		t.Fatalf("%d succeeded, %d failed, %d live and %d waiting parts of %d", f.Succeeded, f.Failed, len(f.parts), waiting, f.Made)
	}
	if len(f.parts) == 0 || len(f.parts) < int(m.window) && waiting > 0 && !parent.CancelRequested {
		t.Fatalf("%d parts are runs and %d wait, the window is %d", len(f.parts), waiting, m.window)
	}
	for i, p := range f.parts {
		if s.Runs.Get(p.ID) != p || p.Fan.place != int32(i) || p.Fan.Part >= f.Map.Released {
			t.Fatalf("part %d stands at %d: %+v", p.Fan.Part, i, p.Fan)
		}
		if _, ok := ended[p.Fan.Part]; ok {
			t.Fatalf("part %d has ended and lives", p.Fan.Part)
		}
	}
}

// TestMapFold draws histories of runs that map. A server that restarts at any point, from
// its rows and the later records, reaches the same state.
func TestMapFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMapped(t, rapid.Bool().Draw(t, "reduce"))
		rows, ended := rowStore{}, map[int32]State{}
		records := rapid.IntRange(1, 120).Draw(t, "records")
		var last *Run
		for range records {
			rec := m.next()
			body, err := proto.Marshal(rec)
			if err != nil {
				t.Fatal(err)
			}
			before, fits := m.restarted(rows), m.fits(rec)
			for _, r := range rows.keep(t, m.s.Apply(rec, nil)) {
				if !r.IsPart() {
					last = r
					continue
				}
				if was, ok := ended[r.Fan.Part]; ok {
					t.Fatalf("part %d ended twice, %s and %s", r.Fan.Part, was, r.State)
				}
				ended[r.Fan.Part] = r.State
			}
			again := &apiv1.Record{}
			if err := proto.Unmarshal(body, again); err != nil {
				t.Fatal(err)
			}
			if fx := before.Apply(again, nil); !fits && len(fx) > 0 {
				t.Fatalf("%v fits nothing and changes something", again)
			}
			alike(t, m.s, before)
			alike(t, m.s, m.restarted(rows))
			m.check(ended)
			if last != nil {
				break
			}
		}
		if last == nil {
			return
		}
		f := last.Fan
		kept := m.base - m.again
		succeeded, failed := kept, f.Made-kept-int32(len(ended))
		for _, state := range ended {
			if state == Succeeded {
				succeeded++
			} else {
				failed++
			}
		}
		if f.Succeeded != succeeded || f.Failed != failed || failed > 0 && !last.CancelRequested && f.Made-kept != int32(len(ended)) {
			t.Fatalf("the run counts %d and %d, %d parts succeeded and %d did not, of %d", f.Succeeded, f.Failed, succeeded, failed, f.Made)
		}
		if (last.State == Succeeded) != (failed == 0 && (!last.Policy.Reduce || f.Map.Reduced)) {
			t.Fatalf("the run is %s, %d parts failed, reduced %v", last.State, failed, f.Map.Reduced)
		}
		for key := range rows {
			if strings.HasPrefix(key, "map") || strings.HasPrefix(key, "checkpoint") {
				t.Fatalf("row %s is left", key)
			}
		}
	})
}

// restarted returns the slot that a restart makes of the rows.
func (m *mapped) restarted(rows rowStore) *Slot {
	s := NewSlot("app", m.s.Index)
	for j := range m.s.Jobs.All() {
		if _, err := s.LoadJob(j.Name(), proto.CloneOf(j.Row())); err != nil {
			m.t.Fatal(err)
		}
		s.Jobs.Get(j.Name()).LoadStats(proto.CloneOf(j.StatsRow()))
	}
	for r := range m.s.Runs.All() {
		if err := s.LoadRun(proto.CloneOf(r.Row())); err != nil {
			m.t.Fatal(err)
		}
	}
	if n := rows.load(m.t, s); n != 0 {
		m.t.Fatalf("%d rows belong to nothing", n)
	}
	s.Loaded()
	return s
}

// alike compares slots by the observable state of their runs and rows.
func alike(t *rapid.T, a, b *Slot) {
	if a.Runs.Len() != b.Runs.Len() {
		t.Fatalf("%d live runs, and %d", a.Runs.Len(), b.Runs.Len())
	}
	for r := range a.Runs.All() {
		id := r.ID
		other := b.Runs.Get(id)
		if other == nil || !proto.Equal(r.Row(), other.Row()) {
			t.Fatalf("a run is\n%v and\n%v", r.Row(), other.Row())
		}
		x, y := r.Fan, other.Fan
		if x == nil {
			continue
		}
		if nx, bx := r.Waiting(); x.Map != nil {
			if ny, by := other.Waiting(); nx != ny || bx != by || x.Map.outBytes != y.Map.outBytes {
				t.Fatalf("%d parts of %d bytes wait and %d of outputs, and %d of %d and %d", nx, bx, x.Map.outBytes, ny, by, y.Map.outBytes)
			}
			ia, oka := x.Map.reduceInput()
			ib, okb := y.Map.reduceInput()
			if oka != okb || !bytes.Equal(ia, ib) {
				t.Fatalf("to reduce: %q and %q", ia, ib)
			}
		}
		ca, _ := a.Checkpoint(id)
		cb, _ := b.Checkpoint(id)
		if !bytes.Equal(ca, cb) {
			t.Fatalf("checkpoints %q and %q", ca, cb)
		}
	}
}

// TestMapAfterATornCommit loads the row of a run that maps, written after a record,
// without the chunk that the record added, because a crash interrupted the commit. Then
// it replays the record.
func TestMapAfterATornCommit(t *testing.T) {
	s := NewSlot("app", SlotOf("j"))
	at := int64(1_700_000_000_000)
	apply := func(s *Slot, k *apiv1.Record) { k.AtMs = at; s.Apply(k, nil) }
	apply(s, &apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{
		App: "app", Name: "j", Handler: &apiv1.Handler{Module: "m@1", Name: "main"}, Fanout: &apiv1.Fanout{Mode: "map"}, CreatedAt: timestamppb.New(time.UnixMilli(at)),
	}}}})
	root := OccurrenceID("app", "j", time.UnixMilli(at), "")
	apply(s, &apiv1.Record{Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: root[:], Job: "j"}}})
	apply(s, &apiv1.Record{Kind: &apiv1.Record_Fanned{Fanned: &apiv1.Fanned{Run: root[:], Parts: 1, Window: 2}}})
	part := s.Runs.Get(root).Fan.parts[0]
	apply(s, &apiv1.Record{Kind: &apiv1.Record_Started{Started: &apiv1.Started{Host: "h", Session: "s", Runs: []*apiv1.Started_Run{{Run: part.ID[:], Attempt: 1}}}}})
	record := func() *apiv1.Record {
		return &apiv1.Record{Kind: &apiv1.Record_Mapped{Mapped: &apiv1.Mapped{
			Part: part.ID[:], Inputs: &apiv1.MapChunk{First: 1, Depth: 1, Sizes: []uint32{1, 1, 1}, Data: []byte("abc")},
		}}}
	}
	apply(s, record())
	torn := &mapped{s: s}
	again := NewSlot("app", s.Index)
	for j := range s.Jobs.All() {
		if _, err := again.LoadJob(j.Name(), j.Row()); err != nil {
			t.Fatal(err)
		}
	}
	for r := range torn.s.Runs.All() {
		if err := again.LoadRun(r.Row()); err != nil {
			t.Fatal(err)
		}
	}
	again.Loaded()
	apply(again, record())
	if parts, size := again.Runs.Get(root).Waiting(); parts != 2 || size != 2 || len(again.Runs.Get(root).Fan.Map.chunks) != 1 {
		t.Errorf("%d parts of %d bytes wait, in %d chunks", parts, size, len(again.Runs.Get(root).Fan.Map.chunks))
	}
	e := &apiv1.Finished_End{Run: part.ID[:], Attempt: 1, Host: "h", Outcome: 1, State: string(Succeeded)}
	apply(again, &apiv1.Record{Kind: &apiv1.Record_Finished{Finished: &apiv1.Finished{Ends: []*apiv1.Finished_End{e}}}})
	var inputs []string
	for _, p := range again.Runs.Get(root).Fan.inOrder() {
		inputs = append(inputs, string(p.Input))
	}
	if !slices.Equal(inputs, []string{"a", "b"}) {
		t.Errorf("the parts that run have the inputs %q", inputs)
	}
}

// TestReduceInput checks the form of the input of the part that reduces.
func TestReduceInput(t *testing.T) {
	m := &Mapping{outputs: []*outputChunkOf{
		{MapOutputs: &apiv1.MapOutputs{Outputs: []*apiv1.MapOutputs_Output{{Part: 2, Output: []byte("two\n<&>")}, {Part: 0}}}},
		{MapOutputs: &apiv1.MapOutputs{Outputs: []*apiv1.MapOutputs_Output{{Part: 1, Output: []byte{0xff, 0}}, {Part: 2, Output: []byte("again")}}}},
	}}
	want := `{"part":0,"output":""}
{"part":1,"output_base64":"/wA="}
{"part":2,"output":"two\n<&>"}
`
	if got, ok := m.reduceInput(); !ok || string(got) != want {
		t.Errorf("got %v\n%s\nwant\n%s", ok, got, want)
	}
	m.outputs = []*outputChunkOf{{MapOutputs: &apiv1.MapOutputs{Outputs: []*apiv1.MapOutputs_Output{{Output: bytes.Repeat([]byte{1}, MaxReduce/4)}}}}}
	if got, ok := m.reduceInput(); ok {
		t.Errorf("%d bytes after they were written as JSON are taken", len(got))
	}
}

// FuzzLoadRow loads rows that no slot has written.
func FuzzLoadRow(f *testing.F) {
	id := OccurrenceID("app", "j", time.UnixMilli(1), "")
	f.Add("kv", "bucket/key", []byte("\x0a\x01v\x10\x01"))
	f.Add("kvseq", "3", []byte("\x08\x05"))
	f.Add("mapin", id.String()+"/00000000", []byte("\x08\x01\x10\x01\x1a\x01\x01\x22\x01a"))
	f.Add("mapout", id.String()+"/00000000", []byte("\x0a\x02\x08\x01"))
	f.Add("checkpoint", id.String(), []byte("\x0a\x01x"))
	f.Add("secret", "name", []byte("\x0a\x01n"))
	f.Add("grants", "m", []byte(""))
	f.Fuzz(func(t *testing.T, kind, rest string, value []byte) {
		slot, ours, err := SlotOfRow(kind, rest)
		if err != nil || !ours {
			return
		}
		if slot >= Slots {
			t.Fatalf("row %q of slot %d", rest, slot)
		}
		s := NewSlot("app", slot)
		r := &Run{ID: id, State: Running, owner: &Job{kind: new(noKind)}, Policy: &Policy{Map: true}, Fan: &Fan{Made: 3, Parts: 3, Map: &Mapping{Released: 1, window: 2, chunkN: 9}}}
		s.Runs.add(r)
		if _, err := s.LoadRow(kind, rest, value); err != nil {
			return
		}
		if _, waiting := r.Waiting(); waiting < 0 || s.ValueBytes() < 0 {
			t.Fatalf("%d bytes wait, %d are kept", waiting, s.ValueBytes())
		}
		r.Fan.Map.reduceInput()
		for range r.Fan.Map.chunks { // loaded chunks can be released
			for i := range r.Fan.Map.chunks[0].Sizes {
				_ = r.Fan.Map.chunks[0].Sizes[i]
			}
		}
	})
}

// TestResumedTwice applies a record to a run that has it already, as a replay does if the
// row of the run is newer than the record.
func TestResumedTwice(t *testing.T) {
	m := &mapped{s: NewSlot("app", SlotOf("j")), nowMs: 1_700_000_000_000, window: 2, base: 9, again: 4}
	m.root = OccurrenceID("app", "j", time.UnixMilli(m.nowMs), "")
	m.with(&apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{
		App: "app", Name: "j", Handler: &apiv1.Handler{Module: "m@1", Name: "main"}, Fanout: &apiv1.Fanout{Mode: "map_reduce"}, Revision: 1,
	}}})
	apply := func(rec *apiv1.Record) {
		rec.AtMs = m.nowMs
		m.s.Apply(rec, nil)
	}
	apply(&apiv1.Record{Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: m.root[:], Job: "j"}}})
	for _, begun := range []bool{false, true} {
		if begun {
			apply(&apiv1.Record{Kind: &apiv1.Record_Fanned{Fanned: &apiv1.Fanned{Run: m.root[:], Parts: 1, Window: m.window}}})
		}
		for range 2 {
			apply(&apiv1.Record{Kind: &apiv1.Record_Resumed{Resumed: m.resumed()}})
			r := m.s.Runs.Get(m.root)
			waiting, bytes := r.Waiting()
			wantWaiting, wantBytes := int32(4), int64(0+1+2+3)
			if begun { // two of the parts are runs
				wantWaiting, wantBytes = 2, 2+3
			}
			outputs := 0
			for _, c := range r.Fan.Map.outputs {
				outputs += len(c.Outputs)
			}
			if waiting != wantWaiting || bytes != wantBytes || outputs != 5 || r.Fan.Map.outBytes != 5*(1+reduceOverhead) || r.Fan.Map.chunkN != 1 {
				t.Errorf("begun %v: %d parts of %d bytes wait, %d outputs of %d bytes, %d chunks", begun, waiting, bytes, outputs, r.Fan.Map.outBytes, r.Fan.Map.chunkN)
			}
		}
	}
	// A record that does not fit changes nothing.
	for _, broken := range []*apiv1.Resumed{{}, {Run: m.root[:]}, {Run: make([]byte, 16), Parts: 3}, {Run: m.root[:], Parts: 8}, {Run: m.root[:], Parts: 9, Inputs: &apiv1.MapChunk{Sizes: []uint32{1}}}} {
		if fx := m.s.Apply(&apiv1.Record{AtMs: m.nowMs, Kind: &apiv1.Record_Resumed{Resumed: broken}}, nil); len(fx) > 0 {
			t.Errorf("%v changes something", broken)
		}
	}
}

// noKind names the type kind where a parameter shadows it.
type noKind = kind
