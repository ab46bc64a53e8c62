// Command plugin is a plugin of Wheelwork: a program whose functions are
// handlers for jobs. A host starts it, and jobs name them plugin:text/count and
// plugin:text/wait. See README.md.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/wheelworkhq/wheelwork/sdk/plugin"
)

func main() {
	plugin.Serve(plugin.Config{
		Version:  "1.0",
		Handlers: map[string]plugin.Func{"count": count, "wait": wait},
	})
}

// count counts the lines, words and bytes of a text.
func count(_ context.Context, t *plugin.Task) ([]byte, error) {
	if !utf8.Valid(t.Input) {
		// A retry has the same input, so it cannot succeed.
		return nil, plugin.Permanent(errors.New("the input is no text in UTF-8"))
	}
	words := len(bytes.Fields(t.Input))
	t.Log().Info("counted", "words", words)
	return json.Marshal(map[string]int{"lines": bytes.Count(t.Input, []byte("\n")), "words": words, "bytes": len(t.Input)})
}

// wait takes as long as the input says and reports its progress. It returns at once when
// the run is cancelled or its timeout has passed.
func wait(ctx context.Context, t *plugin.Task) ([]byte, error) {
	total, err := time.ParseDuration(string(bytes.TrimSpace(t.Input)))
	if err != nil {
		return nil, plugin.Permanent(err)
	}
	const steps = 10
	for done := range int64(steps) {
		t.Progress(done, steps, "waiting")
		select {
		case <-time.After(total / steps):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	t.Progress(steps, steps, "done")
	return []byte("waited " + total.String()), nil
}
