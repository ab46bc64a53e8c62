package event

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of what a sender sends.
const (
	MaxBody    = 256 << 10 // bytes
	MaxBatch   = 100       // events
	maxText    = 1024      // bytes of id, source and type
	maxMembers = 64        // attributes of an event, with its data
)

// The content types of events in JSON.
const (
	structured = "application/cloudevents+json"
	batch      = "application/cloudevents-batch+json"
)

// attributePrefix begins the headers of attributes in binary mode.
const attributePrefix = "ce-"

// Event is one event of CloudEvents.
type Event struct {
	ID, Source, Type string         // of the event; the two first name it
	Fields           map[string]any // as a JSON object; numbers are of type [json.Number]
	JSON             []byte         // in the JSON format
}

// ErrContentType is the error of a body that has no events.
var ErrContentType = errors.New("the request has no event: send " + structured + " or " + batch + ", or the attributes of the event in headers that begin with " + attributePrefix)

// Parse reads the events of a request. The names of headers are in lower case.
func Parse(headers map[string]string, body []byte) ([]Event, error) {
	content := headers["content-type"]
	kind, parameters, err := mime.ParseMediaType(content)
	if err != nil && content != "" {
		return nil, fmt.Errorf("the content type %.100q is malformed", content)
	}
	if len(body) > MaxBody {
		return nil, fmt.Errorf("the body has %d bytes, the limit is %d", len(body), MaxBody)
	}
	switch {
	case kind == structured || kind == batch:
		if set := parameters["charset"]; set != "" && !strings.EqualFold(set, "utf-8") {
			return nil, fmt.Errorf("the charset of JSON is utf-8, not %.40q", set)
		}
		if kind == batch {
			return parseBatch(body)
		}
		var fields map[string]any
		if err := decode(body, &fields); err != nil {
			return nil, fmt.Errorf("the event is no JSON object: %w", err)
		}
		e, err := read(fields)
		return []Event{e}, err
	case strings.HasPrefix(kind, "application/cloudevents"):
		return nil, ErrContentType
	case headers[attributePrefix+"specversion"] == "":
		return nil, ErrContentType
	}
	e, err := parseBinary(headers, kind, body)
	return []Event{e}, err
}

func parseBatch(body []byte) ([]Event, error) {
	var all []map[string]any
	if err := decode(body, &all); err != nil {
		return nil, fmt.Errorf("the batch is no JSON array of objects: %w", err)
	}
	if len(all) > MaxBatch {
		return nil, fmt.Errorf("the batch has %d events, the limit is %d", len(all), MaxBatch)
	}
	events := make([]Event, 0, len(all))
	for i, fields := range all {
		e, err := read(fields)
		if err != nil {
			return nil, fmt.Errorf("event %d of the batch: %w", i, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// parseBinary reads an event whose attributes are headers. kind is the type of its data.
func parseBinary(headers map[string]string, kind string, body []byte) (Event, error) {
	fields := map[string]any{}
	for name, value := range headers {
		if attribute, ok := strings.CutPrefix(name, attributePrefix); ok {
			text, err := url.PathUnescape(value)
			if err != nil {
				return Event{}, fmt.Errorf("the header %.60s: %q is not encoded with percent signs", name, value)
			}
			fields[attribute] = text
		}
	}
	if content := headers["content-type"]; content != "" {
		fields["datacontenttype"] = content
	}
	switch {
	case len(body) == 0:
	case kind == "" || kind == "application/json" || strings.HasSuffix(kind, "+json"):
		var data any
		if err := decode(body, &data); err != nil {
			return Event{}, fmt.Errorf("the data of the event is no JSON: %w", err)
		}
		fields["data"] = data
	case strings.HasPrefix(kind, "text/") && utf8.Valid(body):
		fields["data"] = string(body)
	default:
		fields["data_base64"] = base64.StdEncoding.EncodeToString(body)
	}
	return read(fields)
}

// decode reads exactly one JSON value.
func decode(body []byte, to any) error {
	if !utf8.Valid(body) {
		return errors.New("it is not in UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(to); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("it ends too early")
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}

// read checks the attributes of an event.
func read(fields map[string]any) (e Event, err error) {
	if len(fields) > maxMembers {
		return e, fmt.Errorf("the event has %d attributes, the limit is %d", len(fields), maxMembers)
	}
	if v, _ := fields["specversion"].(string); v != "1.0" {
		return e, errors.New(`specversion is missing, or not "1.0"`)
	}
	for name, to := range map[string]*string{"id": &e.ID, "source": &e.Source, "type": &e.Type} {
		if *to, _ = fields[name].(string); *to == "" || len(*to) > maxText {
			return Event{}, fmt.Errorf("%s is missing, no text, or longer than %d bytes", name, maxText)
		}
	}
	for name, value := range fields {
		if err := checkMember(name, value); err != nil {
			return Event{}, err
		}
	}
	if fields["data"] != nil && fields["data_base64"] != nil {
		return Event{}, errors.New("data and data_base64 are both there: send one")
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(fields); err != nil {
		return Event{}, fmt.Errorf("the event does not encode: %w", err)
	}
	e.Fields, e.JSON = fields, bytes.TrimRight(out.Bytes(), "\n")
	return e, nil
}

func checkMember(name string, value any) error {
	switch name {
	case "data":
		return nil
	case "data_base64":
		if text, ok := value.(string); ok {
			if _, err := base64.StdEncoding.DecodeString(text); err == nil {
				return nil
			}
		}
		return errors.New("data_base64 is not in base64")
	case "time":
		if text, ok := value.(string); ok {
			if _, err := time.Parse(time.RFC3339, text); err == nil {
				return nil
			}
		}
		return errors.New("time is not written as RFC 3339 says, as 2026-01-31T09:00:00Z")
	}
	if strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
		return fmt.Errorf("the attribute %.60q: a name has lower-case letters and digits alone", name)
	}
	switch v := value.(type) {
	case string:
		if !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
			return fmt.Errorf("the attribute %.60s is not in UTF-8, or has a control character", name)
		}
		return nil
	case nil, bool, json.Number:
		return nil
	}
	return fmt.Errorf("the attribute %.60s is an object or an array: only data may be one", name)
}
