package modules_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/wheelworkhq/wheelwork/modules"
)

// empty is the smallest WebAssembly module: its magic number and its version.
var empty = []byte("\x00asm\x01\x00\x00\x00")

// A store keeps bytes under their digest.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := modules.Open(dir)
	if err != nil {
		log.Fatal(err)
	}

	digest, err := store.Put(empty)
	if err != nil {
		log.Fatal(err)
	}
	code, err := store.Get(digest)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(digest[:15], bytes.Equal(code, empty))

	_, err = store.Get(modules.Digest([]byte("other bytes")))
	fmt.Println("not found:", errors.Is(err, modules.ErrNotFound))
	// Output:
	// sha256:93a44bbb true
	// not found: true
}

// A module is trusted if one of its signatures is right and of a trusted key.
func ExampleTrusted() {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) // yours comes from crypto/rand
	signature, err := modules.Sign(key, modules.Digest(empty))
	if err != nil {
		log.Fatal(err)
	}
	trusted := []string{modules.KeyText(key.Public().(ed25519.PublicKey))}
	signatures := []modules.Signature{signature}

	fmt.Println("signed bytes:", modules.Trusted(modules.Digest(empty), signatures, trusted))
	err = modules.Trusted(modules.Digest([]byte("other bytes")), signatures, trusted)
	fmt.Println("other bytes refused:", errors.Is(err, modules.ErrNotSigned))
	// Output:
	// signed bytes: <nil>
	// other bytes refused: true
}

// Sections lists the parts of a module without judging whether it is valid.
func ExampleSections() {
	code := append(bytes.Clone(empty), 0, 5, 4, 'n', 'o', 't', 'e') // a custom section that holds its name alone
	sections, err := modules.Sections(code)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range sections {
		fmt.Println(s.Name, s.Custom, s.Offset, s.Bytes)
	}
	// Output: note true 10 5
}
