// Package keyring holds the keys that seal the secrets of apps. The newest key seals, and
// all of them open.
package keyring
