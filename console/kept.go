package console

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// keptForm is a form that arrived without a session, usually because the session had
// ended. The login page holds it in a hidden field, and after the login a page offers to
// send it. The server does not store it and does not send it by itself.
type keptForm struct {
	Action string      `json:"action"` // path and query of this origin
	From   string      `json:"from"`   // the page that had the form
	Fields []keptField `json:"fields"`
	Multi  bool        `json:"multi,omitempty"` // multipart/form-data
	Files  []string    `json:"files,omitempty"` // names of the file fields; their contents are lost
}

type keptField struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Long reports whether a field needs more than one line.
func (f keptField) Long() bool { return len(f.Value) > 80 || strings.Contains(f.Value, "\n") }

const (
	// maxKept bounds the texts of a kept form, in bytes, and maxKeptFields their number.
	maxKept       = maxForm
	maxKeptFields = 64
	// maxLogin bounds the body of a login, which may contain a kept form: quoted in JSON, and
	// then in the encoding of a form.
	maxLogin = 4 * maxKept
	// maxSkipped bounds the rest of an upload that is read, so that the browser shows the
	// login page instead of a broken connection.
	maxSkipped = 4 << 20
)

// keepForm reads the form of a request without a session. It returns "" for a form that is
// too large or damaged.
func (c *console) keepForm(r *http.Request) string {
	k := keptForm{Action: r.URL.RequestURI(), From: c.formPage(r)}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var ok bool
	if kind == "multipart/form-data" {
		k.Multi = true
		ok = k.readParts(r)
	} else {
		ok = k.readValues(r)
	}
	if !ok {
		return ""
	}
	b, err := json.Marshal(k)
	if err != nil {
		return ""
	}
	return string(b)
}

// formPage returns the page of this origin from which a form was sent; otherwise "".
func (c *console) formPage(r *http.Request) string {
	u, err := url.Parse(r.Referer())
	if err != nil || u.Host != r.Host && u.Scheme+"://"+u.Host != c.public || u.Path == "/login" {
		return ""
	}
	return localPath(u.RequestURI())
}

func (k *keptForm) readValues(r *http.Request) bool {
	r.Body = http.MaxBytesReader(nil, r.Body, maxKept)
	if r.ParseForm() != nil {
		return false
	}
	for name, values := range r.PostForm {
		for _, value := range values {
			k.Fields = append(k.Fields, keptField{name, value})
		}
	}
	slices.SortStableFunc(k.Fields, func(a, b keptField) int { return strings.Compare(a.Name, b.Name) })
	return len(k.Fields) <= maxKeptFields
}

func (k *keptForm) readParts(r *http.Request) bool {
	defer func() { _, _ = io.CopyN(io.Discard, r.Body, maxSkipped) }()
	form, err := r.MultipartReader()
	if err != nil {
		return false
	}
	for size := 0; len(k.Fields)+len(k.Files) < maxKeptFields; {
		part, err := form.NextPart()
		if err != nil {
			return errors.Is(err, io.EOF)
		}
		if part.FileName() != "" || part.Header.Get("Content-Type") != "" {
			k.Files = append(k.Files, part.FormName())
			if len(k.Fields) > 0 { // the text fields precede the file
				return true
			}
			continue
		}
		b, err := io.ReadAll(io.LimitReader(part, int64(maxKept-size)+1))
		if size += len(b); err != nil || size > maxKept {
			return false
		}
		k.Fields = append(k.Fields, keptField{part.FormName(), string(b)})
	}
	return false
}

// readKept reads the hidden field of the login page.
func readKept(text string) (k keptForm, ok bool) {
	if text == "" || json.Unmarshal([]byte(text), &k) != nil || len(k.Fields)+len(k.Files) > maxKeptFields {
		return k, false
	}
	return k, k.Action != "" && localPath(k.Action) == k.Action && (k.From == "" || localPath(k.From) == k.From)
}
