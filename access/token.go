package access

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

// tokenPrefix begins the text of every token, so that scanners of secrets find one in a file.
const tokenPrefix = "wwk_"

const (
	tokenBytes = 20 // random bytes: 160 bits
	idBytes    = 5  // of the digest, which name a token in lists and logs
)

var tokenText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewToken returns the text of a token from random bytes: the prefix, 160 bits and a checksum. The
// caller stores its digest and shows the text once.
func NewToken(random io.Reader) (string, error) {
	b := make([]byte, tokenBytes)
	if _, err := io.ReadFull(random, b); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	body := tokenText.EncodeToString(b)
	return tokenPrefix + body + checksum(body), nil
}

// checksum returns 7 characters, by which a client notices a token that was copied in part.
func checksum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	return tokenText.EncodeToString([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

// CheckToken returns an error that names the fault in the form of a token. A token of another
// form may still be one of a file of the server (--token-file).
func CheckToken(text string) error {
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	size := tokenText.EncodedLen(tokenBytes)
	switch {
	case !ok:
		return fmt.Errorf("a token begins with %s", tokenPrefix)
	case len(rest) != size+tokenText.EncodedLen(4):
		return fmt.Errorf("the token has %d characters, want %d: it was copied in part", len(text), len(tokenPrefix)+size+tokenText.EncodedLen(4))
	case checksum(rest[:size]) != rest[size:]:
		return fmt.Errorf("the checksum of the token is wrong: a character was changed")
	}
	return nil
}

// Digest returns what the server stores of a token.
func Digest(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// TokenID returns the id of a token from its digest. It tells nothing about the text.
func TokenID(digest [sha256.Size]byte) string {
	return "tok-" + tokenText.EncodeToString(digest[:idBytes])
}
