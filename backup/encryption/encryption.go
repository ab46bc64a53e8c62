package encryption

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"

	"github.com/wheelworkhq/wheelwork/backup"
)

// Header begins each encrypted backup.
const Header = "age-encryption.org/v1\n"

const (
	maxRecipients = 20
	// maxRecipient is the length of the longest public key that is read, in bytes. Those
	// that resist quantum computers have about 2 000.
	maxRecipient = 4 << 10
)

// Recipients are the public keys for which a backup is encrypted. The zero value has none.
type Recipients struct{ keys []age.Recipient }

// ParseRecipients reads public keys of age. Its errors contain none of them, because one
// of them may be a private key by mistake.
func ParseRecipients(texts []string) (Recipients, error) {
	if len(texts) > maxRecipients {
		return Recipients{}, fmt.Errorf("there are %d recipients, at most %d are possible", len(texts), maxRecipients)
	}
	var r Recipients
	for i, text := range texts {
		key, err := parseRecipient(strings.TrimSpace(text))
		if err != nil {
			return Recipients{}, fmt.Errorf("recipient %d of %d %w", i+1, len(texts), err)
		}
		r.keys = append(r.keys, key)
	}
	if !r.Any() {
		return r, nil
	}
	if _, err := age.Encrypt(io.Discard, r.keys...); err != nil {
		return Recipients{}, fmt.Errorf("the recipients do not go together: give either those that begin with age1pq1 or the others (%w)", err)
	}
	return r, nil
}

func parseRecipient(text string) (age.Recipient, error) {
	switch {
	case strings.HasPrefix(strings.ToUpper(text), "AGE-SECRET-KEY-"):
		return nil, errors.New("is a private key: give the public key of it, which begins with age1, and use a new pair, because command lines and settings are no place for a private key")
	case strings.HasPrefix(text, "ssh-"):
		return nil, errors.New("is a key of ssh: give a public key that `age-keygen` has made, which begins with age1")
	case len(text) <= maxRecipient && !strings.ContainsAny(text, "\r\n"):
		if keys, err := age.ParseRecipients(strings.NewReader(text)); err == nil && len(keys) == 1 {
			return keys[0], nil
		}
	}
	return nil, errors.New("is not a public key of age: give one that `age-keygen` has made, which begins with age1")
}

// Any reports whether there is a recipient.
func (r Recipients) Any() bool { return len(r.keys) > 0 }

// Encrypt returns a writer that encrypts its bytes. Without recipients the bytes pass unchanged. Close
// writes the end; without it a reader refuses the backup.
func (r Recipients) Encrypt(w io.Writer) (io.WriteCloser, error) {
	if !r.Any() {
		return plain{w}, nil
	}
	return age.Encrypt(w, r.keys...)
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// Identities are private keys. The zero value has none.
type Identities struct{ keys []age.Identity }

// ParseIdentities reads a file of identities, as `age-keygen` writes it.
func ParseIdentities(r io.Reader) (Identities, error) {
	in := bufio.NewReader(r)
	if start, _ := in.Peek(len(Header)); string(start) == Header || bytes.HasPrefix(start, []byte("-----BEGIN AGE")) { //nolint:errcheck // ParseIdentities reports it
		return Identities{}, errors.New("it is encrypted itself: decrypt it with `age --decrypt` to a file that only you can read")
	}
	keys, err := age.ParseIdentities(in) // its errors contain no key
	if err != nil {
		return Identities{}, fmt.Errorf("it does not hold identities of age, which begin with AGE-SECRET-KEY- (%w): make one with `age-keygen -o FILE`", err)
	}
	return Identities{keys}, nil
}

var (
	// ErrEncrypted means that a backup is encrypted and that there is no identity.
	ErrEncrypted = errors.New("the backup is encrypted")
	// ErrOtherIdentity means that no identity opens the backup.
	ErrOtherIdentity = errors.New("none of the identities opens the backup: it was encrypted for another recipient, or its first bytes are damaged")
)

// Open returns the bytes of a backup, and whether they were encrypted. A backup that is
// not encrypted passes unchanged.
func Open(r io.Reader, ids Identities) (_ io.Reader, encrypted bool, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	if start, err := in.Peek(len(Header)); string(start) != Header {
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, false, err
		}
		return in, false, nil
	}
	if len(ids.keys) == 0 {
		return nil, true, ErrEncrypted
	}
	from := &source{r: in}
	out, err := age.Decrypt(from, ids.keys...)
	if other := (*age.NoIdentityMatchError)(nil); errors.As(err, &other) {
		return nil, true, ErrOtherIdentity
	}
	if err != nil {
		return nil, true, from.explain(err)
	}
	return &opened{out, from}, true, nil
}

// source remembers why the bytes ended, because age does not pass every error on.
type source struct {
	r     io.Reader
	err   error // other than an end
	ended bool
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.ended = s.ended || errors.Is(err, io.EOF); err != nil && !s.ended {
		s.err = err
	}
	return n, err
}

// explain turns an error of age into one about the backup. A backup that ended early is
// refused by its checksum in most cases, so both are possible then.
func (s *source) explain(err error) error {
	switch {
	case s.err != nil:
		return s.err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return backup.ErrCut
	case s.ended:
		return fmt.Errorf("%w or cut short: its last bytes are not those that were encrypted", backup.ErrDamaged)
	default:
		return fmt.Errorf("%w: its bytes are not those that were encrypted", backup.ErrDamaged)
	}
}

// opened reads what age has decrypted.
type opened struct {
	r    io.Reader
	from *source
}

func (o *opened) Read(p []byte) (int, error) {
	n, err := o.r.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // an io.Reader ends with io.EOF itself
		err = o.from.explain(err)
	}
	return n, err
}
