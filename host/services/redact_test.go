package services

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestFormsAreTakenOut checks each form in which programs write a secret by accident. No
// part of the secret may be left, and the text around it stays.
func TestFormsAreTakenOut(t *testing.T) {
	const password = `pa<ss>"w\o+r/d & é#7`
	quoted, err := json.Marshal(map[string]string{"token": password})
	if err != nil {
		t.Fatal(err)
	}
	const pem = "-----BEGIN KEY-----\nMC4CAQAwBQYDK2VwBCIEIGz\nAbCdEfGhIjKlMnOpQrStUvW\n-----END KEY-----\n"
	for _, tt := range []struct{ name, secret, text, want string }{
		{"as it is", password, "the " + password + " of it", "the [secret] of it"},
		{"twice", "s3cr3t", "s3cr3ts3cr3t s3cr3", "[secret][secret] s3cr3"},
		{"JSON", password, string(quoted), `{"token":"[secret]"}`},
		{"JSON in JSON", `a"b"c"d"`, `{"said":"a\"b\"c\"d\""}`, `{"said":"[secret]"}`},
		{"a query", password, "GET /?q=" + url.QueryEscape(password) + "&amp=1", "GET /?q=[secret]&amp=1"},
		{"a path", password, "GET /" + url.PathEscape(password) + "/x", "GET /[secret]/x"},
		{"HTML", password, "<b>" + html.EscapeString(password) + "</b>", "<b>[secret]</b>"},
		{"a query of Python", password, "GET /?q=pa%3css%3E%22w%5Co%2Br/d%20%26%20%C3%A9%237&x=1", "GET /?q=[secret]&x=1"},
		{"bytes of Python", password, `b'pa<ss>"w\\o+r/d & \xc3\xa9#7'`, "b'[secret]'"},
		{"Rust", password, `"pa<ss>\"w\\o+r/d & \u{e9}#7"`, `"[secret]"`},
		{"two halves of a character", "a key \U0001F511 of mine", `{"k":"a key \ud83d\udd11 of mine"}`, `{"k":"[secret]"}`},
		{"cut off in JSON", "0123456789\"abcdef", `{"k":"0123456789\"ab`, `{"k":"[secret]`},
		{"an escape that is cut off", password, `50% \ \x \u12 \u{ & &; &nothing; %zz \q`, `50% \ \x \u12 \u{ & &; &nothing; %zz \q`},
		{"Go", password, fmt.Sprintf("%q", password), `"[secret]"`},
		{"hexadecimal", password, hex.EncodeToString([]byte(password)) + "!", "[secret]!"},
		{"in capitals", password, fmt.Sprintf("%X!", password), "[secret]!"},
		{"base64", password, base64.StdEncoding.EncodeToString([]byte(password)) + ".", "[secret]."},
		{"base64 of an address", "\xfb\xef\xbe\xfb\xef\xbe\xfb", base64.RawURLEncoding.EncodeToString([]byte("\xfb\xef\xbe\xfb\xef\xbe\xfb")) + " ", "[secret] "},
		{"base64 of few bytes", "abcd", "is YWJjZA== here", "is [secret] here"},
		{"a line break behind it", "s3cr3t\n", "it is s3cr3t, isn't it", "it is [secret], isn't it"},
		{"a line of a key", pem, "MC4CAQAwBQYDK2VwBCIEIGz", "[secret]"},
		{"the next one", pem, "  AbCdEfGhIjKlMnOpQrStUvW", "  [secret]"},
		{"what all keys have", pem, "a -----BEGIN KEY----- and", "a -----BEGIN KEY----- and"},
		{"a short line of one", "0123456789\nyes\n", "yes", "yes"},
		{"cut off behind", "0123456789abcdef", "it is 0123456789", "it is [secret]"},
		{"cut off before", "0123456789abcdef", "6789abcdef it is", "[secret] it is"},
		{"both", "0123456789abcdef", "89abcdef and 01234567", "[secret] and [secret]"},
		{"cut off base64", "0123456789abcdef", "Basic MDEyMzQ1Njc4", "Basic [secret]"},
		{"too little to know", "0123456789abcdef", "it is 0123456", "it is 0123456"},
		{"a beginning in the middle", "0123456789abcdef", "it is 0123456789 of", "it is 0123456789 of"},
		{"too short", "pin", "the pin is pin", "the pin is pin"},
		{"something else", password, "password", "password"},
		{"nothing", password, "", ""},
	} {
		text := []byte(tt.text)
		if got := string(formsOf([]byte(tt.secret)).takeOut(text)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if string(text) != tt.text {
			t.Errorf("%s: the text itself was changed to %q", tt.name, text)
		}
	}
	// Basic authentication and similar: the base64 of a longer text, with any length
	// before and after the secret.
	for before := range 7 {
		for after := range 4 {
			text := strings.Repeat("u", before) + "s3cr3t-t0ken" + strings.Repeat("x", after)
			for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
				said := "Basic " + e.EncodeToString([]byte(text))
				got := string(formsOf([]byte("s3cr3t-t0ken")).takeOut([]byte(said)))
				head, tail, ok := strings.Cut(got, "[secret]")
				// The rest are characters with bits of the text around the secret.
				if !ok || len(head) > len("Basic ")+(8*before+5)/6 || len(tail) > (8*after+5)/6+3 {
					t.Errorf("%q became %q", said, got)
				}
			}
		}
	}
}

// TestFormsOfSeveral: the longer secret is removed first, whichever was received first.
func TestFormsOfSeveral(t *testing.T) {
	short, long := formsOf([]byte("token")), formsOf([]byte("token-of-the-app"))
	for _, f := range []forms{short.and(long), long.and(short), long.and(short).and(long)} {
		if got := string(f.takeOut([]byte("token-of-the-app, token"))); got != "[secret], [secret]" {
			t.Errorf("%q", got)
		}
	}
	if twice := long.and(long); len(twice.plain) != len(long.plain) || len(twice.encoded) != len(long.encoded) {
		t.Errorf("a secret that was told twice has the forms %q, want %q", twice, long)
	}
}

// TestTakingOutIsQuick: a user who chooses both secret and text cannot keep a host busy.
func TestTakingOutIsQuick(t *testing.T) {
	secret := append(bytes.Repeat([]byte("a"), 60<<10), 'b')
	text := bytes.Repeat([]byte("a"), 16<<10)
	f := formsOf(secret)
	start := time.Now()
	for range 10 {
		f.takeOut(text)
	}
	// Up to 64 tries at each end for some forms; without that bound it takes more than a
	// minute.
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("ten lines took %v", took)
	}
}

func FuzzTakeOut(f *testing.F) {
	f.Add([]byte("s3cr3t-t0ken"), []byte("user:"), []byte(" and more"))
	f.Add([]byte("line one of it\nline two of it\n"), []byte(""), []byte(""))
	f.Add([]byte(`"<>&\x00\u00e9`+"\xff\x00é"), []byte("{"), []byte("}"))
	f.Add([]byte("aaaaaaaaaaaaaaaa"), []byte("aaa"), []byte("aaaaaaaaaaaaaaaa"))
	f.Add([]byte("a%aaaaaa"), []byte("a%a"), []byte("aaaa")) // "%aa" is an escape across the beginning of the secret
	f.Fuzz(func(t *testing.T, secret, before, after []byte) {
		if len(secret) < leastForm || len(secret) > 1<<12 || len(before)+len(after) > 1<<12 || bytes.Contains([]byte("[secret][secret]"), secret) {
			return
		}
		forms := formsOf(secret)
		whole := append(append(bytes.Clone(before), secret...), after...)
		if got := forms.takeOut(whole); bytes.Contains(got, secret) && !bytes.ContainsAny(secret, string(redacted)) {
			t.Errorf("%q is left in %q", secret, got)
		}
		for _, e := range escapes {
			plain, from, ok := e.decode(whole)
			if ok && (len(from) != len(plain)+1 || from[len(plain)] != len(whole) || !slices.IsSorted(from)) {
				t.Errorf("%q is %q, from %d", whole, plain, from)
			}
		}
		if utf8.Valid(secret) {
			text, err := json.Marshal(string(secret))
			if err != nil {
				t.Fatal(err)
			}
			if got := forms.takeOut(text); !bytes.Contains(got, redacted) {
				t.Errorf("JSON: %s became %q", text, got)
			}
			if got := forms.takeOut([]byte(html.EscapeString(string(secret)))); !bytes.Contains(got, redacted) {
				t.Errorf("HTML: %q became %q", secret, got)
			}
		}
		for name, said := range map[string]string{
			"base64": base64.StdEncoding.EncodeToString(whole), "base64 of an address": base64.RawURLEncoding.EncodeToString(whole),
			"hexadecimal": hex.EncodeToString(whole), "a query": string(before) + url.QueryEscape(string(secret)) + string(after),
			"Go": string(before) + fmt.Sprintf("%q", secret) + string(after),
		} {
			if got := forms.takeOut([]byte(said)); !bytes.Contains(got, redacted) {
				t.Errorf("%s: %q became %q, and holds %q", name, said, got, secret)
			}
		}
	})
}
