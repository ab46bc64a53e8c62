package store

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// The keys in badger. Each kind begins with its letter. A text before the last part has a
// terminator, so keys sort by their parts.
//
//	t                          there while a commit of several transactions is under way
//	v                          state of the view (meta)
//	j text(app) name           job
//	s text(app) name           stats of a job
//	m text(app) text(name) version   module
//	r text(app) id             live run, 16 bytes
//	w key                      small row
//	x text(app) id             removal of a finished run, 16 bytes
//	q base                     shares of apps in a sealed segment of revisions; 8 bytes, big endian
const (
	kindTorn   = 't'
	kindView   = 'v'
	kindJob    = 'j'
	kindStats  = 's'
	kindModule = 'm'
	kindRun    = 'r'
	kindRow    = 'w'
	kindShares = 'q'

	kindRemoved = 'x'
)

// maxKey is the length limit of a key, in bytes. Badger accepts 65 000.
const maxKey = 4096

var errKey = errors.New("malformed key")

// appendText appends a text with a terminator that preserves the order of texts. A zero byte
// becomes 0 255, and the terminator is 0 1.
func appendText(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = append(dst, s[i])
		if s[i] == 0 {
			dst = append(dst, 255)
		}
	}
	return append(dst, 0, 1)
}

// cutText is the inverse of appendText.
func cutText(b []byte) (s string, rest []byte, err error) {
	var out []byte
	for {
		i := bytes.IndexByte(b, 0)
		if i < 0 || i+1 == len(b) {
			return "", nil, errKey
		}
		out = append(out, b[:i]...)
		switch b[i+1] {
		case 1:
			return string(out), b[i+2:], nil
		case 255:
			out = append(out, 0)
		default:
			return "", nil, errKey
		}
		b = b[i+2:]
	}
}

func tornKey() []byte { return []byte{kindTorn} }

func viewKey() []byte { return []byte{kindView} }

func jobKey(app, name string) []byte { return append(appendText([]byte{kindJob}, app), name...) }

func statsKey(app, name string) []byte { return append(appendText([]byte{kindStats}, app), name...) }

// parseJobKey parses the key of a job or of its stats.
func parseJobKey(key []byte) (app, name string, err error) {
	app, rest, err := cutText(key[1:])
	return app, string(rest), err
}

// modulesKey returns the common prefix of the keys of an app's modules.
func modulesKey(app string) []byte { return appendText([]byte{kindModule}, app) }

func moduleKey(app, name, version string) []byte {
	return append(appendText(modulesKey(app), name), version...)
}

func parseModuleKey(key []byte) (app, name, version string, err error) {
	app, rest, err := cutText(key[1:])
	if err != nil {
		return "", "", "", err
	}
	name, rest, err = cutText(rest)
	return app, name, string(rest), err
}

func runKey(app string, id [16]byte) []byte {
	return append(appendText([]byte{kindRun}, app), id[:]...)
}

func parseRunKey(key []byte) (app string, id [16]byte, err error) {
	app, rest, err := cutText(key[1:])
	if err == nil && len(rest) != len(id) {
		err = errKey
	}
	copy(id[:], rest)
	return app, id, err
}

func sharesKey(base int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kindShares}, uint64(base))
}

func sharesBase(key []byte) int64 { return int64(binary.BigEndian.Uint64(key[1:])) }

func rowKey(key string) []byte { return append([]byte{kindRow}, key...) }

func parseRowKey(key []byte) string { return string(key[1:]) }
