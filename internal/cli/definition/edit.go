package definition

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) edit() *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:   "edit KIND NAME",
		Short: "Change a definition in an editor",
		Long: `Change a definition in an editor: the one of VISUAL or EDITOR, otherwise vi. The editor
shows the document in canonical form. Leave it with the document as it was, or empty, to
change nothing. A document with mistakes opens again and names them in comments. If
another caller has changed the definition meanwhile, the command fails, and the text
stays in a file whose name it prints.

` + kinds,
		Example: `  wheelwork edit job report --note "half an hour later"
  EDITOR="code --wait" wheelwork edit calendar holidays`,
		Args:              command.Arguments("KIND", "NAME"),
		ValidArgsFunction: c.completeKinds,
	}
	cmd.Flags().StringVar(&note, "note", "", "reason, for the history")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := c.object(cmd, args)
		if err != nil {
			return err
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, _ []string) error {
			return c.editObject(sdk.WithNote(ctx, note), client, cmd, o)
		})(cmd, args)
	}
	return cmd
}

// editObject lets a person change a definition, until it is applied, left as it was, or refused
// for a reason that another text cannot remove.
func (c *commands) editObject(ctx context.Context, client *sdk.Client, cmd *cobra.Command, o object) error {
	newest, err := revisionOf(ctx, client, o) // before the definition, so that a change between the two is noticed
	if err != nil {
		return err
	}
	old, err := read(ctx, client, o.of, o.app, o.name)
	if err != nil {
		return err
	}
	text, err := document.Marshal(old)
	if err != nil {
		return err
	}
	draft, err := newDraft(o.kind, text)
	if err != nil {
		return err
	}
	for {
		before := draft.text
		if err := draft.open(ctx, cmd, c.getenv); err != nil {
			return draft.keep(err)
		}
		switch edited := withoutMistakes(draft.text); {
		case bytes.Equal(edited, text), len(bytes.TrimSpace(edited)) == 0:
			c.Note("%s: nothing was changed", old)
			return draft.remove()
		case bytes.Equal(draft.text, before): // left again with the same mistakes
			return draft.keep(command.Fail("canceled", "%s: nothing was changed, because the document still has mistakes", old))
		default:
			next, err := parseEdited(edited, old)
			if err == nil && len(document.Diff(old, next)) == 0 {
				c.Note("%s: nothing was changed", old)
				return draft.remove()
			}
			if err == nil {
				err = c.replace(ctx, client, o, old, next, newest)
			}
			if err == nil {
				c.Note("%s: updated", old)
				return draft.remove()
			}
			if !correctable(err) {
				return draft.keep(err)
			}
			draft.text = withMistakes(edited, err)
		}
	}
}

// correctable reports whether another text could remove an error: a mistake in the document, or
// a refusal of what it says, such as a calendar that does not exist.
func correctable(err error) bool {
	var problems document.Problems
	switch {
	case errors.As(err, &problems):
		return true
	case errors.Is(err, sdk.ErrChanged):
		return false
	}
	return errors.Is(err, sdk.ErrInvalid) || errors.Is(err, sdk.ErrPrecondition) || errors.Is(err, sdk.ErrNotFound)
}

// parseEdited reads the text of the editor. The document must still be that of the same object.
func parseEdited(text []byte, old *document.Document) (*document.Document, error) {
	all, err := document.Parse(bytes.NewReader(text), document.Options{Kind: old.Kind, Only: true})
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, document.Problems{{Text: fmt.Sprintf("want one document, found %d", len(all))}}
	}
	d := all[0]
	if d.App == "" {
		d.SetApp(old.App)
	}
	if d.App != old.App || d.Name != old.Name {
		return nil, document.Problems{{At: d.At, Text: fmt.Sprintf("this is %s of app %s, and not %s of app %s: an edit cannot rename", d, d.App, old, old.App)}}
	}
	if job, ok := d.Spec.(*sdk.Job); ok && job.Paused == nil && old.Spec.(*sdk.Job).GetPaused() {
		resumed := false // a document without the field would leave the job paused
		job.Paused = &resumed
	}
	return d, nil
}

// revisionOf returns the number of the newest revision of an object, 0 if it has none.
func revisionOf(ctx context.Context, client *sdk.Client, o object) (int64, error) {
	all, err := client.Revisions(ctx, o.app, o.kind, o.name)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[0].GetNumber(), nil
}

// replace writes a definition over the one that was read. The server compares the etag of a
// job; for the other kinds the number of the newest revision is compared before the change.
func (c *commands) replace(ctx context.Context, client *sdk.Client, o object, old, next *document.Document, newest int64) error {
	if job, ok := next.Spec.(*sdk.Job); ok {
		_, err := client.ApplyIf(ctx, job, cmp.Or(job.GetEtag(), old.Spec.(*sdk.Job).GetEtag()))
		return err
	}
	now, err := revisionOf(ctx, client, o)
	switch {
	case err != nil:
		return err
	case now != newest:
		return fmt.Errorf("%s has revision %d now, and the text was made from revision %d: edit it again: %w", old, now, newest, sdk.ErrChanged)
	}
	_, err = client.ApplyChangeSet(ctx, sdk.ChangeSet{App: o.app, Definitions: []proto.Message{next.Spec}})
	return plan{app: o.app, documents: []*document.Document{next}}.refusal(err)
}

// mistake begins the lines that name mistakes. No other lines begin so: the canonical form has
// no comments of its own at the begin of a line.
const mistake = "#! "

// withMistakes puts the mistakes of a document above it.
func withMistakes(text []byte, err error) []byte {
	var b bytes.Buffer
	for line := range strings.Lines(err.Error()) {
		b.WriteString(mistake + strings.TrimRight(line, "\n") + "\n")
	}
	b.WriteString(mistake + "correct it, or leave the text as it is to change nothing; lines count from below this one\n")
	b.Write(text)
	return b.Bytes()
}

// withoutMistakes removes the lines of [withMistakes] at the begin of a text.
func withoutMistakes(text []byte) []byte {
	for bytes.HasPrefix(text, []byte(mistake)) {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return text
}

// maxDraft bounds the text of an editor, in bytes.
const maxDraft = 4 << 20

// draft is the text in the editor: a file in a directory that only its owner may open.
type draft struct {
	dir, path string
	text      []byte
}

func newDraft(kind string, text []byte) (*draft, error) {
	dir, err := os.MkdirTemp("", "wheelwork-edit-") // mode 0700
	if err != nil {
		return nil, fmt.Errorf("make a folder for the text: %w", err)
	}
	return &draft{dir, filepath.Join(dir, kind+".yaml"), text}, nil
}

// open writes the text, waits for the editor and reads the text again.
func (d *draft) open(ctx context.Context, cmd *cobra.Command, getenv func(string) string) error {
	if err := os.WriteFile(d.path, d.text, 0o600); err != nil {
		return err
	}
	words := strings.Fields(cmp.Or(getenv("VISUAL"), getenv("EDITOR"), "vi"))
	if len(words) == 0 {
		words = []string{"vi"}
	}
	editor := exec.CommandContext(ctx, words[0], append(words[1:], d.path)...)
	editor.Stdin, editor.Stdout, editor.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := editor.Run(); err != nil {
		return fmt.Errorf("run the editor %s: %w; VISUAL or EDITOR names another one", words[0], err)
	}
	info, err := os.Stat(d.path)
	if err != nil {
		return fmt.Errorf("read the edited text: %w", err)
	}
	if info.Size() > maxDraft {
		return fmt.Errorf("the edited text is larger than %d MiB", maxDraft>>20)
	}
	d.text, err = os.ReadFile(d.path)
	return err
}

func (d *draft) remove() error { return os.RemoveAll(d.dir) }

// keep names the file with the text in an error, so that no work is lost.
func (d *draft) keep(err error) error {
	return fmt.Errorf("%w; the text is in %s", err, d.path)
}
