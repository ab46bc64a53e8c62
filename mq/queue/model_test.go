package queue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

// fate is the state of a message in a group in the model.
type fate uint8

const (
	fatePending fate = iota
	fateFlying       // with a consumer
	fateAcked        // the acknowledgement is durable
	fateMaybe        // acknowledged, and a crash may lose that
	fateEither       // acknowledged, and a crash may have lost that
	fateDead
	fateDropped
)

type modelMessage struct {
	id      uint64
	topic   string
	key     string
	body    string
	due     time.Time
	delayed bool
}

type modelGroup struct {
	topic, name string
	c           *Consumer
	fates       map[uint64]fate
	failures    map[uint64]int // an upper bound; a crash may lose some
	replayed    map[uint64]bool
	flying      []Delivery
}

// model applies random operations to a queue and checks their results.
type model struct {
	t      *testing.T
	rng    *rand.Rand
	q      *Queue
	msgs   map[uint64]*modelMessage
	order  []uint64
	dedups map[string]uint64
	groups []*modelGroup
	serial int
	trims  int
}

// TestModel runs random histories with crashes. WHEELWORK_SEED runs one seed, WHEELWORK_LONG many.
func TestModel(t *testing.T) {
	seeds := make([]uint64, 8)
	if testkit.Long() {
		seeds = make([]uint64, 1000)
	}
	for i := range seeds {
		seeds[i] = rand.Uint64()
	}
	for _, seed := range testkit.Seeds(t, seeds...) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runModel(t, seed) })
		})
	}
}

func runModel(t *testing.T, seed uint64) {
	m := &model{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), msgs: map[uint64]*modelMessage{}, dedups: map[string]uint64{},
	}
	cfg := small(t.TempDir())
	cfg.MaxAttempts, cfg.Levels = 4, []time.Duration{time.Second, 10 * time.Second}
	cfg.CacheBytes = 1 + m.rng.IntN(100_000)
	cfg.DedupWindow = 1000 * time.Hour
	m.q = open(t, cfg)
	for _, topic := range []string{"a", "b"} {
		for _, name := range []string{"g", "h"} {
			m.groups = append(m.groups, &modelGroup{
				topic: topic, name: name, c: consumer(t, m.q, topic, name),
				fates: map[uint64]fate{}, failures: map[uint64]int{}, replayed: map[uint64]bool{},
			})
		}
	}
	for range 700 {
		m.step()
	}
	m.drain()
	if err := m.q.Close(); err != nil {
		t.Fatal(err)
	}
}

func (m *model) group() *modelGroup { return m.groups[m.rng.IntN(len(m.groups))] }

func (m *model) step() {
	switch n := m.rng.IntN(100); {
	case n < 35:
		m.publish()
	case n < 60:
		m.fetch(m.group(), 1+m.rng.IntN(8))
	case n < 82:
		m.ack(m.group())
	case n < 89:
		m.nack(m.group())
	case n < 91:
		m.reconsume(m.group())
	case n < 96:
		time.Sleep(time.Duration(m.rng.Int64N(int64(10 * time.Second))))
		m.settled()
	case n < 97:
		m.dead()
	case n < 98:
		m.restart(false)
	default:
		m.restart(true)
	}
}

// settled declares lazily written records to be in the files after enough time.
func (m *model) settled() {
	if err := m.q.Sync(); err != nil {
		m.t.Fatal(err)
	}
	for _, g := range m.groups {
		for id, f := range g.fates {
			if f == fateMaybe {
				g.fates[id] = fateAcked
			}
		}
	}
}

func (m *model) publish() {
	var ms []Message
	for range 1 + m.rng.IntN(4) {
		m.serial++
		body := fmt.Sprintf("%d-%s", m.serial, strings.Repeat("x", m.rng.IntN(2000)))
		msg := Message{Topic: string(rune('a' + m.rng.IntN(2))), Body: []byte(body)}
		if n := m.rng.IntN(4); n > 0 {
			msg.Key = fmt.Sprint("k", n)
		}
		if m.rng.IntN(6) == 0 {
			msg.After = time.Duration(m.rng.Int64N(int64(30 * time.Second)))
		}
		if m.rng.IntN(4) == 0 {
			msg.Dedup = fmt.Sprint(m.rng.IntN(50))
		}
		ms = append(ms, msg)
	}
	now := time.Now()
	rs := publish(m.t, m.q, ms...)
	for i, r := range rs {
		k := ms[i].Topic + "/" + ms[i].Dedup
		if ms[i].Dedup != "" {
			old, known := m.dedups[k]
			if known != r.Duplicate || known && old != r.ID {
				m.t.Fatalf("key %s: receipt %+v, want id %d, duplicate %v", k, r, old, known)
			}
			m.dedups[k] = r.ID
		}
		if r.Duplicate {
			continue
		}
		if m.msgs[r.ID] != nil {
			m.t.Fatalf("id %d was given out twice", r.ID)
		}
		m.msgs[r.ID] = &modelMessage{r.ID, ms[i].Topic, ms[i].Key, string(ms[i].Body), now.Add(ms[i].After), ms[i].After > 0}
		m.order = append(m.order, r.ID)
	}
}

func (m *model) fetch(g *modelGroup, most int) int {
	ds, _, err := g.c.take(most)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, d := range ds {
		m.delivered(g, d)
	}
	return len(ds)
}

func (m *model) delivered(g *modelGroup, d Delivery) {
	msg := m.msgs[d.ID]
	switch {
	case msg == nil:
		m.t.Fatalf("message %d was never published", d.ID)
	case msg.topic != g.topic || msg.body != string(d.Body) || msg.key != d.Key:
		m.t.Fatalf("message %d came as %.40s of %s/%s", d.ID, d.Body, d.Topic, d.Key)
	case time.Now().Before(msg.due):
		m.t.Fatalf("message %d came %v early", d.ID, time.Until(msg.due))
	case d.Attempt > g.failures[d.ID]+1:
		m.t.Fatalf("message %d: attempt %d after %d failures", d.ID, d.Attempt, g.failures[d.ID])
	}
	if f := g.fates[d.ID]; f != fatePending && f != fateEither {
		m.t.Fatalf("message %d of %s/%s came although its fate is %d", d.ID, g.topic, g.name, f)
	}
	for _, id := range m.order {
		o := m.msgs[id]
		if o.topic != msg.topic || o.key != msg.key || o.key == "" || id == d.ID {
			continue
		}
		if g.fates[id] == fateFlying {
			m.t.Fatalf("message %d came while %d of its key is with a consumer", d.ID, id)
		}
		if id < d.ID && g.fates[id] == fatePending && !o.delayed && !g.replayed[id] && !msg.delayed && !g.replayed[d.ID] {
			m.t.Fatalf("message %d came before %d of its key", d.ID, id)
		}
	}
	g.fates[d.ID] = fateFlying
	g.flying = append(g.flying, d)
}

func (g *modelGroup) takeFlying(rng *rand.Rand) Delivery {
	i := rng.IntN(len(g.flying))
	d := g.flying[i]
	g.flying = slices.Delete(g.flying, i, i+1)
	return d
}

func (m *model) ack(g *modelGroup) {
	if len(g.flying) == 0 {
		return
	}
	var ds []Delivery
	for range 1 + m.rng.IntN(len(g.flying)) {
		ds = append(ds, g.takeFlying(m.rng))
	}
	to := fateMaybe
	if m.rng.IntN(2) == 0 {
		to = fateAcked
		ack(m.t, g.c, ds...)
		m.settled()
	} else if err := g.c.Ack(ds, nil); err != nil {
		m.t.Fatal(err)
	}
	for _, d := range ds {
		g.fates[d.ID] = to
	}
}

func (m *model) nack(g *modelGroup) {
	if len(g.flying) == 0 {
		return
	}
	d := g.takeFlying(m.rng)
	permanent := m.rng.IntN(8) == 0
	dies := permanent || d.Attempt >= m.q.cfg.MaxAttempts
	if err := g.c.Nack(d, errors.New("model"), permanent); err != nil {
		m.t.Fatal(err)
	}
	g.failures[d.ID] = d.Attempt
	g.fates[d.ID] = fatePending
	if dies {
		m.settled()
		g.fates[d.ID] = fateDead
	}
}

func (m *model) reconsume(g *modelGroup) {
	g.c.Close()
	for _, d := range g.flying {
		g.fates[d.ID] = fatePending
	}
	g.flying = nil
	g.c = consumer(m.t, m.q, g.topic, g.name)
	m.settled()
}

// dead checks the dead letters, and replays or drops those of a group.
func (m *model) dead() {
	for _, g := range m.groups {
		f := Filter{Topic: g.topic, Group: g.name}
		n := 0
		for token := ""; ; {
			ds, next, err := m.q.Dead(f, token, 3)
			if err != nil {
				m.t.Fatal(err)
			}
			for _, d := range ds {
				n++
				if msg := m.msgs[d.MessageID]; g.fates[d.MessageID] != fateDead || msg.body != string(d.Body) {
					m.t.Fatalf("dead letter %d of message %d, whose fate is %d", d.ID, d.MessageID, g.fates[d.MessageID])
				}
			}
			if token = next; token == "" {
				break
			}
		}
		act, to := m.q.Drop, fateDropped
		if m.rng.IntN(2) == 0 {
			act, to = m.q.Replay, fatePending
		}
		done, err := act(f)
		if err != nil || done != n {
			m.t.Fatalf("changed %d of %d dead letters: %v", done, n, err)
		}
		for id, f := range g.fates {
			if f != fateDead {
				continue
			}
			g.fates[id] = to
			g.failures[id] = 0
			g.replayed[id] = true
			n--
		}
		if n != 0 {
			m.t.Fatalf("%d dead letters too many", n)
		}
		m.settled()
	}
}

// restart opens the queue again, after a crash or a Close.
func (m *model) restart(crashed bool) {
	cfg := m.q.cfg
	if crashed {
		cfg.Dir = crash(m.t, m.q)
		damage(m.t, m.rng, cfg.Dir)
	} else {
		m.settled()
	}
	if m.q.log.First() > 1 {
		m.trims++
	}
	if err := m.q.Close(); err != nil {
		m.t.Fatal(err)
	}
	if !crashed && m.rng.IntN(3) == 0 {
		damage(m.t, m.rng, cfg.Dir)
	}
	if crashed {
		for _, g := range m.groups {
			for id, f := range g.fates {
				if f == fateMaybe {
					g.fates[id] = fateEither
				}
			}
		}
	}
	cfg.Log.SegmentBytes = int64(64+4*m.rng.IntN(8)) << 10
	m.q = open(m.t, cfg)
	for _, g := range m.groups {
		for _, d := range g.flying {
			g.fates[d.ID] = fatePending
		}
		g.flying = nil
		g.c = consumer(m.t, m.q, g.topic, g.name)
	}
}

// damage damages the derived files, or leaves them alone.
func damage(t *testing.T, rng *rand.Rand, dir string) {
	names, err := filepath.Glob(filepath.Join(dir, "index", "*"))
	if err != nil || len(names) == 0 {
		return
	}
	name := names[rng.IntN(len(names))]
	switch rng.IntN(5) {
	case 0:
		err = os.RemoveAll(filepath.Join(dir, "index"))
	case 1:
		err = os.Remove(name)
	case 2:
		err = flip(name, rng.Int())
	case 3:
		err = cut(name, rng.Int())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func flip(name string, at int) error {
	b, err := os.ReadFile(name)
	if err != nil || len(b) == 0 {
		return err
	}
	b[at%len(b)] ^= 0x10
	return os.WriteFile(name, b, 0o600)
}

func cut(name string, at int) error {
	info, err := os.Stat(name)
	if err != nil || info.Size() == 0 {
		return err
	}
	return os.Truncate(name, int64(at)%info.Size())
}

// drain delivers all remaining messages.
func (m *model) drain() {
	for _, g := range m.groups {
		for idle := 0; idle < 3; {
			n := m.fetch(g, 50)
			if len(g.flying) > 0 {
				ack(m.t, g.c, g.flying...)
			}
			for _, d := range g.flying {
				g.fates[d.ID] = fateAcked
			}
			g.flying = nil
			if n == 0 {
				idle++
				time.Sleep(time.Minute)
			}
		}
		for _, id := range m.order {
			if msg := m.msgs[id]; msg.topic == g.topic && g.fates[id] == fatePending {
				m.t.Fatalf("message %d was never delivered to %s/%s", id, g.topic, g.name)
			}
		}
	}
	m.settled()
	for _, ts := range m.q.Stats().Topics {
		for _, gs := range ts.Groups {
			if gs.Lag != 0 || gs.Lost != 0 {
				m.t.Fatalf("at the end: %+v", gs)
			}
		}
	}
	m.t.Logf("%d messages, log from %d to %d, trimmed at %d restarts", len(m.order), m.q.log.First(), m.q.log.Next(), m.trims)
}
