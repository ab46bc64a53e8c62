package encryption_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"filippo.io/age"

	"github.com/wheelworkhq/wheelwork/backup"
	"github.com/wheelworkhq/wheelwork/backup/encryption"
)

// pair returns a new identity, and its public key.
func pair(t *testing.T) (encryption.Identities, string, string) {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := encryption.ParseIdentities(strings.NewReader("# a comment\n\n" + id.String() + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return ids, id.Recipient().String(), id.String()
}

func encrypt(t *testing.T, text []byte, recipients ...string) []byte {
	t.Helper()
	r, err := encryption.ParseRecipients(recipients)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := r.Encrypt(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func open(b io.Reader, ids encryption.Identities) ([]byte, bool, error) {
	r, encrypted, err := encryption.Open(b, ids)
	if err != nil {
		return nil, encrypted, err
	}
	text, err := io.ReadAll(r)
	return text, encrypted, err
}

// TestRoundTrip: each recipient opens the backup, and no other identity does. Without
// recipients the bytes pass unchanged.
func TestRoundTrip(t *testing.T) {
	one, oneKey, _ := pair(t)
	two, twoKey, _ := pair(t)
	other, _, _ := pair(t)
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 300_000} {
		text := make([]byte, size)
		for i := range text {
			text[i] = byte(rand.Uint32())
		}
		sealed := encrypt(t, text, oneKey, twoKey)
		if !bytes.HasPrefix(sealed, []byte(encryption.Header)) {
			t.Fatalf("it begins with %q", sealed[:20])
		}
		for _, ids := range []encryption.Identities{one, two} {
			if got, encrypted, err := open(bytes.NewReader(sealed), ids); err != nil || !encrypted || !bytes.Equal(got, text) {
				t.Errorf("%d bytes: %d, %v, %v", size, len(got), encrypted, err)
			}
		}
		if _, _, err := open(bytes.NewReader(sealed), other); !errors.Is(err, encryption.ErrOtherIdentity) {
			t.Errorf("another identity: %v", err)
		}
		if _, encrypted, err := open(bytes.NewReader(sealed), encryption.Identities{}); !errors.Is(err, encryption.ErrEncrypted) || !encrypted {
			t.Errorf("no identity: %v", err)
		}
		plain := encrypt(t, text)
		if got, encrypted, err := open(bytes.NewReader(plain), one); err != nil || encrypted || !bytes.Equal(got, text) || !bytes.Equal(plain, text) {
			t.Errorf("without recipients: %d bytes, %v, %v", len(got), encrypted, err)
		}
	}
}

// TestStream: bytes leave the writer while the text is still being written.
func TestStream(t *testing.T) {
	_, key, _ := pair(t)
	r, err := encryption.ParseRecipients([]string{key})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := r.Encrypt(&out)
	if err != nil {
		t.Fatal(err)
	}
	const part, held = 1 << 20, 200 << 10 // held bounds what the writer keeps, in bytes
	for n := part; n <= 8*part; n += part {
		if _, err := w.Write(make([]byte, part)); err != nil {
			t.Fatal(err)
		}
		if out.Len() < n-held {
			t.Fatalf("after %d bytes it has written %d", n, out.Len())
		}
	}
}

// TestTampered: a changed, cut or longer backup never reads to its end without an error,
// and the error says that the backup is at fault.
func TestTampered(t *testing.T) {
	ids, key, _ := pair(t)
	text := bytes.Repeat([]byte("wheelwork "), 20_000) // several chunks
	sealed := encrypt(t, text, key)
	try := func(name string, b []byte) {
		t.Helper()
		got, encrypted, err := open(bytes.NewReader(b), ids)
		if !encrypted { // the first bytes are those of another format, which a reader of backups refuses
			return
		}
		if !errors.Is(err, backup.ErrDamaged) && !errors.Is(err, backup.ErrCut) && !errors.Is(err, encryption.ErrOtherIdentity) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if !bytes.HasPrefix(text, got) {
			t.Errorf("%s: it read other bytes", name)
		}
	}
	for range 300 {
		at := rand.IntN(len(sealed))
		flipped := bytes.Clone(sealed)
		flipped[at] ^= 1 << rand.IntN(8)
		try("a bit flipped", flipped)
		try("cut", sealed[:at])
	}
	for at := range 250 { // the header
		flipped := bytes.Clone(sealed)
		flipped[at] ^= 1
		try("a bit of the header flipped", flipped)
		try("cut in the header", sealed[:at])
	}
	const chunk = 64<<10 + 16
	for n := 1; n*chunk < len(sealed); n++ {
		try("cut between chunks", sealed[:len(sealed)-len(sealed)%chunk-(n-1)*chunk])
	}
	try("more at the end", append(bytes.Clone(sealed), 'x'))
	try("twice", append(bytes.Clone(sealed), sealed...))
}

// TestBrokenSource: an error of the source is not taken for a damaged backup.
func TestBrokenSource(t *testing.T) {
	ids, key, _ := pair(t)
	sealed := encrypt(t, make([]byte, 200_000), key)
	broken := errors.New("the disk is gone")
	for _, n := range []int{0, 10, 100, 1000, 150_000, len(sealed)} {
		_, _, err := open(io.MultiReader(bytes.NewReader(sealed[:n]), iotest.ErrReader(broken)), ids)
		if !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

// TestParseRecipients: a text that is no public key is refused, with advice, and without the
// text, which may be a private key.
func TestParseRecipients(t *testing.T) {
	_, key, private := pair(t)
	resistant, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for _, good := range [][]string{nil, {key}, {" " + key + "\n"}, {key, key}, {resistant.Recipient().String()}} {
		if r, err := encryption.ParseRecipients(good); err != nil || r.Any() != (len(good) > 0) {
			t.Errorf("%q: %v", good, err)
		}
	}
	for want, bad := range map[string][]string{
		"recipient 2 of 2 is a private key": {key, private},
		"1 of 1 is a private key":           {strings.ToLower(private)},
		"is a key of ssh":                   {"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ"},
		"is not a public key of age":        {""},
		"recipient 1 of 1 is not":           {"# " + key},
		"recipient 1 of 2 is not":           {key[:len(key)-1], key},
		"recipient 1 of 1 is":               {key + "\n" + key},
		"1 of 1 is not a public":            {strings.Repeat("a", 1<<20)},
		"at most 20":                        make([]string, 21),
		"do not go together":                {key, resistant.Recipient().String()},
	} {
		_, err := encryption.ParseRecipients(bad)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", bad, err, want)
		}
		for _, text := range bad {
			if err != nil && len(text) > 20 && strings.Contains(strings.ToLower(err.Error()), strings.ToLower(text)) {
				t.Errorf("the error shows a key: %v", err)
			}
		}
	}
}

// TestParseIdentities: a file that holds no identity is refused with what to do, and
// without its text.
func TestParseIdentities(t *testing.T) {
	_, key, private := pair(t)
	for name, bad := range map[string]string{
		"empty": "", "a public key": key, "a cut key": private[:len(private)-1], "a token": "ww_secretsecretsecret",
	} {
		_, err := encryption.ParseIdentities(strings.NewReader(bad))
		if err == nil || !strings.Contains(err.Error(), "age-keygen") || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, locked := range []string{encryption.Header + "-> scrypt", "-----BEGIN AGE ENCRYPTED FILE-----\n"} {
		if _, err := encryption.ParseIdentities(strings.NewReader(locked)); err == nil || !strings.Contains(err.Error(), "age --decrypt") {
			t.Errorf("%q: %v", locked, err)
		}
	}
}
