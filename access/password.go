package access

import (
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
)

// The cost of a hash of a password: 64 MiB and about 60 ms. Source: RFC 9106, section 4, second
// recommended option with one lane.
const (
	argonKiB    = 64 << 10
	argonPasses = 3
	argonLanes  = 1
	saltBytes   = 16
	hashBytes   = 32
)

// Bounds of a password, in characters and bytes. The lower one is that of NIST SP 800-63B-4 for a
// password alone.
const (
	leastPassword = 15
	maxPassword   = 1024
)

// CheckPassword returns an error if a text is no password that a user may choose.
func CheckPassword(name, text string) error {
	switch n := utf8.RuneCountInString(text); {
	case !utf8.ValidString(text):
		return errors.New("the password is not UTF-8")
	case n < leastPassword:
		return fmt.Errorf("the password has %d characters, the least is %d: several words make a good one", n, leastPassword)
	case len(text) > maxPassword:
		return fmt.Errorf("the password has %d bytes, the limit is %d", len(text), maxPassword)
	case name != "" && strings.Contains(strings.ToLower(text), strings.ToLower(name)):
		return errors.New("the password contains the name of the user")
	case strings.Count(text, text[:1]) == len(text):
		return errors.New("the password is one character again and again")
	}
	return nil
}

// HashPassword returns the hash of a password in the form that [VerifyPassword] reads. It takes 64 MiB of
// memory: the caller bounds concurrent calls.
func HashPassword(text string, random io.Reader) (string, error) {
	salt := make([]byte, saltBytes)
	if _, err := io.ReadFull(random, salt); err != nil {
		return "", fmt.Errorf("make a salt: %w", err)
	}
	sum := argon2.IDKey([]byte(text), salt, argonPasses, argonKiB, argonLanes, hashBytes)
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonKiB, argonPasses, argonLanes, b64.EncodeToString(salt), b64.EncodeToString(sum)), nil
}

// NoPassword is a hash of the cost of a new one that no known password has.
const NoPassword = "$argon2id$v=19$m=65536,t=3,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// VerifyPassword reports whether a password has a hash. Its time does not depend on where they
// differ. A hash that cannot be read, or that would cost more than sixteen times as much as a new one,
// fits no password.
func VerifyPassword(text, hash string) bool {
	var version, kib, passes, lanes int
	parts := strings.Split(hash, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return false
	}
	if n, err := fmt.Sscanf(parts[2]+" "+parts[3], "v=%d m=%d,t=%d,p=%d", &version, &kib, &passes, &lanes); err != nil || n != 4 || version != argon2.Version {
		return false
	}
	if kib < 8 || kib > 4*argonKiB || passes < 1 || passes > 4*argonPasses || lanes < 1 || lanes > 16 {
		return false
	}
	salt, err := base64.RawStdEncoding.DecodeString(parts[4])
	want, err2 := base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil || err2 != nil || len(want) == 0 || len(want) > 128 {
		return false
	}
	sum := argon2.IDKey([]byte(text), salt, uint32(passes), uint32(kib), uint8(lanes), uint32(len(want)))
	return subtle.ConstantTimeCompare(sum, want) == 1
}
