package session

import (
	"encoding/binary"
	"testing"
)

// BenchmarkHeld adds, looks up and removes tasks while 1000 are held, in held and in a Go
// map of keys.
func BenchmarkHeld(b *testing.B) {
	const live = 1000
	tasks := make([]task, 2*live)
	for i := range tasks {
		k := key{app: "default", attempt: 1}
		binary.BigEndian.PutUint64(k.run[8:], uint64(i)*0x9e3779b97f4a7c15)
		tasks[i].named(k)
	}
	bench := func(b *testing.B, put func(*task), get func(key) *task, remove func(*task)) {
		for i := range live {
			put(&tasks[i])
		}
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			old := &tasks[n%len(tasks)]
			put(&tasks[(n+live)%len(tasks)])
			if get(old.key) != old {
				b.Fatal("a task is missing")
			}
			remove(old)
		}
	}
	b.Run("held", func(b *testing.B) {
		var h held
		bench(b, func(t *task) { h.put(t) }, h.get, h.remove)
	})
	b.Run("map", func(b *testing.B) {
		m := map[key]*task{}
		bench(b, func(t *task) { m[t.key] = t }, func(k key) *task { return m[k] }, func(t *task) { delete(m, t.key) })
	})
}
