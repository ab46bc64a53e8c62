package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"sync"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/proto"
)

// requestJSON decodes the bodies of requests: exactly one JSON value. It refuses data after
// the value, because a client that sends two values would assume that both were read.
type requestJSON struct{ runtime.JSONPb }

// NewDecoder implements [runtime.Marshaler].
func (m *requestJSON) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		d := json.NewDecoder(r)
		var text json.RawMessage
		if err := d.Decode(&text); errors.Is(err, io.EOF) {
			return err // no body
		} else if err != nil {
			return fmt.Errorf("the body is not JSON: %w", err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return errors.New("the body goes on after its JSON value: send one value")
		}
		err := m.Unmarshal(text, v)
		if err == nil {
			return nil
		}
		if into := messageIn(v); into != nil {
			if wrong := check(text, into.ProtoReflect().Descriptor()); wrong != nil {
				return wrong
			}
		}
		return errors.New("the body is wrong: " + plain(err))
	})
}

// messageIn returns the message that v points to, directly or by a pointer, or nil.
func messageIn(v any) proto.Message {
	if m, ok := v.(proto.Message); ok {
		return m
	}
	if r := reflect.ValueOf(v); r.Kind() == reflect.Pointer && r.Elem().CanInterface() {
		m, _ := r.Elem().Interface().(proto.Message)
		return m
	}
	return nil
}

// inner matches what the package of JSON messages writes before its errors.
var inner = regexp.MustCompile(`^proto:[\s\x{a0}]*(\(line (\d+:\d+)\): )?`)

// plain returns an error of the package of JSON messages without its own words.
func plain(err error) string { return inner.ReplaceAllString(err.Error(), "") }

// queryParser reads the query of a request. Its errors name the parameter.
type queryParser struct{ runtime.DefaultQueryParser }

// useQueryParser sets the parser of all gateways of the process, which the library keeps in
// a package variable. It sets it once, because other gateways may serve meanwhile.
var useQueryParser = sync.OnceFunc(func() { runtime.NewServeMux(runtime.SetQueryParameterParser(queryParser{})) })

// Parse implements [runtime.QueryParameterParser].
func (p queryParser) Parse(m proto.Message, query url.Values, filter *utilities.DoubleArray) error {
	err := p.DefaultQueryParser.Parse(m, query, filter)
	if err == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if f := fieldAt(m.ProtoReflect().Descriptor(), name); f != nil {
			for _, value := range query[name] {
				if wrong := checkQuery(f, name, value); wrong != nil {
					return wrong
				}
			}
		}
	}
	return errors.New("the query is wrong: " + plain(err))
}
