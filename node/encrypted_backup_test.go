package node_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/wheelworkhq/wheelwork/backup"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/backup/encryption"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// recipient is a pair of keys for backups.
type recipient struct {
	public string
	ids    encryption.Identities
}

func newRecipient(t *testing.T) recipient {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := encryption.ParseIdentities(strings.NewReader(id.String()))
	if err != nil {
		t.Fatal(err)
	}
	return recipient{id.Recipient().String(), ids}
}

// opened returns the bytes of an encrypted backup.
func (r recipient) opened(t *testing.T, b *bytes.Buffer) io.Reader {
	t.Helper()
	in, encrypted, err := encryption.Open(bytes.NewReader(b.Bytes()), r.ids)
	if err != nil || !encrypted {
		t.Fatalf("encrypted %v, %v", encrypted, err)
	}
	return in
}

// serve runs a server on a directory, with a log that the test can read.
func serve(t *testing.T, cfg node.ServerConfig, log *bytes.Buffer) *process {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	if log != nil {
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	return launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		cfg := cfg
		cfg.Ready = ready
		return node.Server(ctx, cfg)
	})
}

// TestBackupRecipients: a server encrypts for the recipients that a caller names, or else
// for its own, which a reload replaces. Keys are in encrypted backups only, unless the
// caller accepts the opposite.
func TestBackupRecipients(t *testing.T) {
	dir := t.TempDir()
	own, next, named := newRecipient(t), newRecipient(t), newRecipient(t)
	requests := make(chan node.Reload[node.ServerConfig])
	cfg := node.ServerConfig{Data: dir, Reload: requests}
	p := serve(t, cfg, nil)
	c := client(t, p, p.Token)
	secret, err := os.ReadFile(filepath.Join(dir, "secret.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{p.Token, string(secret)} { // the test would prove nothing otherwise
		var b bytes.Buffer
		if err := backUp(within(t), c, &b); err != nil || !bytes.Contains(b.Bytes(), []byte(text)) {
			t.Fatalf("a backup with keys does not show them: %v", err)
		}
	}
	const all = "token host-token secret.key"
	// check makes a backup, and checks it: which server it is of, and which keys it has.
	check := func(opt sdk.BackupOptions, by *recipient, keys string) {
		t.Helper()
		var b bytes.Buffer
		sum, err := c.Backup(within(t), &b, opt)
		if err != nil {
			t.Errorf("%+v: %v", opt, err)
			return
		}
		if by == nil {
			res, err := archive.Check(within(t), &b, nil)
			if err != nil || sum != nil || strings.Join(res.Keys, " ") != keys {
				t.Errorf("%+v: %+v, %v, %v", opt, res, sum, err)
			}
			return
		}
		if bytes.Contains(b.Bytes(), []byte(p.Token)) || bytes.Contains(b.Bytes(), secret) {
			t.Errorf("%+v: a key is in clear", opt)
		}
		res, err := archive.Check(within(t), by.opened(t, &b), nil)
		if err != nil || strings.Join(res.Keys, " ") != keys {
			t.Errorf("%+v: %+v, %v", opt, res, err)
		}
		told := archive.Summarized(sum)
		if told.Bytes = res.Bytes; told.Server != res.Server || told.Applied != res.Applied || told.Files != res.Files || told.Size != res.Size || told.Key != res.Key || strings.Join(told.Keys, " ") != keys || !told.MadeAt.Equal(res.MadeAt) {
			t.Errorf("%+v: the server says %+v, the backup %+v", opt, told, res)
		}
	}
	refused := func(opt sdk.BackupOptions, want string) {
		t.Helper()
		var b bytes.Buffer
		if _, err := c.Backup(within(t), &b, opt); err == nil || !strings.Contains(err.Error(), want) || b.Len() > 0 {
			t.Errorf("%+v: %v and %d bytes, want %q", opt, err, b.Len(), want)
		}
	}
	forNamed := []string{named.public}
	check(sdk.BackupOptions{}, nil, "")
	check(sdk.BackupOptions{PlaintextKeys: true}, nil, "")
	check(sdk.BackupOptions{Keys: sdk.BackupKeysLeftOut}, nil, "")
	check(sdk.BackupOptions{Keys: sdk.BackupKeysIncluded, PlaintextKeys: true}, nil, all)
	check(sdk.BackupOptions{Keys: sdk.BackupKeysOnly, PlaintextKeys: true}, nil, all)
	check(sdk.BackupOptions{Recipients: forNamed}, &named, all)
	check(sdk.BackupOptions{Recipients: forNamed, Keys: sdk.BackupKeysOnly}, &named, all)
	check(sdk.BackupOptions{Recipients: forNamed, Keys: sdk.BackupKeysLeftOut}, &named, "")
	refused(sdk.BackupOptions{Keys: sdk.BackupKeysIncluded}, "--plaintext-keys")
	refused(sdk.BackupOptions{Keys: sdk.BackupKeysOnly}, "--plaintext-keys")
	refused(sdk.BackupOptions{Keys: 9}, "unknown")
	refused(sdk.BackupOptions{Recipients: []string{"age1"}}, "not a public key")

	for _, r := range []recipient{own, next} {
		cfg.BackupRecipients = []string{r.public}
		wantReload(t, requests, cfg, "")
		check(sdk.BackupOptions{}, &r, all)
		check(sdk.BackupOptions{Keys: sdk.BackupKeysIncluded, PlaintextKeys: true}, &r, all)
		check(sdk.BackupOptions{Keys: sdk.BackupKeysOnly}, &r, all)
		check(sdk.BackupOptions{Keys: sdk.BackupKeysLeftOut}, &r, "")
		check(sdk.BackupOptions{Recipients: forNamed}, &named, all)
	}
	bad := cfg
	bad.BackupRecipients = []string{"nobody"}
	wantReload(t, requests, bad, "--backup-recipient: recipient 1 of 1 is not")
	check(sdk.BackupOptions{}, &next, all)
	cfg.BackupRecipients = nil
	wantReload(t, requests, cfg, "")
	check(sdk.BackupOptions{}, nil, "")
	bad.Reload, bad.Data, bad.Listen, bad.Ready = nil, t.TempDir(), "127.0.0.1:0", func(node.Ready) { t.Error("it started") }
	if err := node.Server(within(t), bad); err == nil || !strings.Contains(err.Error(), "--backup-recipient: recipient 1 of 1") {
		t.Errorf("a start with a wrong recipient: %v", err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
}

// TestKeylessRestore: a server starts on a directory that was restored without keys, and
// names the secrets that it cannot read. With the keys of an export it reads them all.
func TestKeylessRestore(t *testing.T) {
	dir := t.TempDir()
	r := newRecipient(t)
	p := serve(t, node.ServerConfig{Data: filepath.Join(dir, "a")}, nil)
	c := client(t, p, p.Token)
	for _, name := range []string{"first", "second"} {
		if _, err := c.SetSecret(within(t), "", name, []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	var bare, keys bytes.Buffer
	if _, err := c.Backup(within(t), &bare, sdk.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Backup(within(t), &keys, sdk.BackupOptions{Recipients: []string{r.public}, Keys: sdk.BackupKeysOnly}); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	restore := func(name string, set archive.KeySet) string {
		t.Helper()
		to := filepath.Join(dir, name)
		res, err := archive.Restore(within(t), bytes.NewReader(bare.Bytes()), to, set, nil)
		if err != nil || len(res.Keys) != len(set) || res.Key != (set != nil) {
			t.Fatalf("%s: %+v, %v", name, res, err)
		}
		return to
	}
	marked := func(to string) bool {
		t.Helper()
		_, err := os.Stat(filepath.Join(to, "restored-without-key"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	// serveOnce starts the server, and checks which secrets it cannot read.
	serveOnce := func(to string, set string, unreadable ...string) string {
		t.Helper()
		var log bytes.Buffer
		p := serve(t, node.ServerConfig{Data: to}, &log)
		if set != "" {
			if _, err := client(t, p, p.Token).SetSecret(within(t), "", set, []byte("again")); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.stop(); err != nil { // the log is complete
			t.Fatal(err)
		}
		for _, name := range []string{"first", "second"} {
			told := strings.Contains(log.String(), "secret=\""+name+" of app default\"")
			if want := strings.Contains(strings.Join(unreadable, " "), name); told != want {
				t.Errorf("%s unreadable: %v, want %v:\n%s", name, told, want, log.String())
			}
		}
		return p.Token
	}

	without := restore("without", nil)
	if token := serveOnce(without, "first", "first", "second"); token == p.Token || token == "" {
		t.Errorf("the token is %q", token)
	}
	serveOnce(without, "", "second") // each start says what is left
	if !marked(without) {
		t.Error("the mark is gone, and a secret cannot be read")
	}
	serveOnce(without, "second", "second")
	serveOnce(without, "")
	if marked(without) {
		t.Error("the mark stays, and every secret can be read")
	}
	// From here on another key is a mistake again.
	if err := os.Remove(filepath.Join(without, "secret.key")); err != nil {
		t.Fatal(err)
	}
	err := node.Server(within(t), node.ServerConfig{Data: without, Listen: "127.0.0.1:0", Ready: func(node.Ready) { t.Error("it started") }})
	if err == nil || !strings.Contains(err.Error(), "--new-secret-key") {
		t.Errorf("another key: %v", err)
	}

	set, err := archive.ReadKeys(within(t), r.opened(t, &keys))
	if err != nil {
		t.Fatal(err)
	}
	with := restore("with", set)
	if marked(with) {
		t.Error("a directory with its key has the mark")
	}
	if token := serveOnce(with, ""); token != p.Token {
		t.Error("the token is another one")
	}
	same(t, filepath.Join(dir, "a", "secret.key"), filepath.Join(with, "secret.key"))

	// An export of keys is no backup, and a backup without keys no export.
	if _, err := archive.Restore(within(t), r.opened(t, &keys), filepath.Join(dir, "no"), nil, nil); err == nil || !strings.Contains(err.Error(), "--keys") {
		t.Errorf("a restore of keys alone: %v", err)
	}
	if _, err := archive.ReadKeys(within(t), bytes.NewReader(bare.Bytes())); err == nil || !strings.Contains(err.Error(), "no keys") {
		t.Errorf("the keys of a backup without: %v", err)
	}
	if _, err := archive.ReadKeys(within(t), io.LimitReader(r.opened(t, &keys), 200)); !errors.Is(err, backup.ErrCut) {
		t.Errorf("half an export: %v", err)
	}
	// A whole backup has keys as well, and those of --keys replace its own.
	var whole bytes.Buffer
	again := serve(t, node.ServerConfig{Data: without, NewSecretKey: true}, nil)
	if _, err := client(t, again, again.Token).Backup(within(t), &whole, sdk.BackupOptions{Recipients: []string{r.public}}); err != nil {
		t.Fatal(err)
	}
	if err := again.stop(); err != nil {
		t.Fatal(err)
	}
	both := filepath.Join(dir, "both")
	if res, err := archive.Restore(within(t), r.opened(t, &whole), both, archive.KeySet{"token": set["token"]}, nil); err != nil || len(res.Keys) != 3 {
		t.Fatalf("%+v, %v", res, err)
	}
	same(t, filepath.Join(dir, "a", "token"), filepath.Join(both, "token"))
	same(t, filepath.Join(without, "secret.key"), filepath.Join(both, "secret.key"))
}

// TestTamperedBackup: an encrypted backup that is changed or cut leaves no file.
func TestTamperedBackup(t *testing.T) {
	dir := t.TempDir()
	r := newRecipient(t)
	p := serve(t, node.ServerConfig{Data: filepath.Join(dir, "a"), BackupRecipients: []string{r.public}}, nil)
	var made bytes.Buffer
	if _, err := client(t, p, p.Token).Backup(within(t), &made, sdk.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "to")
	whole := made.Bytes()
	for at := len(whole) / 5; at < len(whole); at += max(len(whole)/20, 1) {
		flipped := bytes.Clone(whole)
		flipped[at] ^= 4
		for name, bad := range map[string][]byte{"a bit": flipped, "cut": whole[:at]} {
			in, _, err := encryption.Open(bytes.NewReader(bad), r.ids)
			if err == nil {
				_, err = archive.Restore(within(t), in, to, nil, nil)
			}
			if !errors.Is(err, backup.ErrDamaged) && !errors.Is(err, backup.ErrCut) && !errors.Is(err, encryption.ErrOtherIdentity) {
				t.Errorf("%s at %d: %v", name, at, err)
			}
			if left, err := os.ReadDir(to); err == nil && len(left) > 0 {
				t.Errorf("%s at %d left %v", name, at, left)
			}
		}
	}
	if _, err := archive.Restore(within(t), r.opened(t, &made), to, nil, nil); err != nil {
		t.Errorf("the backup itself: %v", err)
	}
}
