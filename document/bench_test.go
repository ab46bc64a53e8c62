package document

import (
	"bytes"
	"fmt"
	"testing"
)

// BenchmarkParse reads a source of 20 000 jobs, and BenchmarkMarshal writes it.
func BenchmarkParse(b *testing.B) {
	source := jobs(20_000)
	b.SetBytes(int64(len(source)))
	for b.Loop() {
		if _, err := Parse(bytes.NewReader(source), Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMarshal(b *testing.B) {
	source := jobs(20_000)
	documents, err := Parse(bytes.NewReader(source), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(source)))
	for b.Loop() {
		if _, err := Marshal(documents...); err != nil {
			b.Fatal(err)
		}
	}
}

func jobs(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "---\nname: job-%d\nhandler: {module: totals@1}\nschedule: {cron: \"0 */5 * * * *\", zone: Asia/Shanghai}\ninput: '{\"region\":\"eu\"}'\ntimeout: 30s\nretry: {max: 3, first: 1s, limit: 2m}\nlabels: {team: money}\n", i)
	}
	return b.Bytes()
}
