package core

import (
	"crypto/sha256"
	"strconv"
)

// keyHash returns the hash of the name of a job and an idempotency key: the first 16
// bytes of a SHA-256. The server stores the hash and not the key.
func keyHash(name, key string) [16]byte {
	var room [2 * maxKey]byte
	b := strconv.AppendInt(room[:0], int64(len(name)), 10)
	b = append(append(append(b, ':'), name...), key...)
	sum := sha256.Sum256(b)
	return [16]byte(sum[:])
}

const maxKey = 256
