package openapi

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// refusal is the answer to a refused request, with one status.
type refusal struct {
	status int
	name   string
	text   string
	header string // of the answer; "": none of its own
	about  string // the text of the header
}

// statuses are the refusals that have a status of their own in an operation. All others
// are "default".
var statuses = []refusal{
	{400, "BadRequest", "The request is wrong: the message says what, and what to send instead.", "", ""},
	{401, "Unauthorized", "The request has no token, or one that the server does not know.", "WWW-Authenticate", "the scheme of the token"},
	{403, "Forbidden", "The token lacks the permission.", "", ""},
	{404, "NotFound", "The object does not exist.", "", ""},
	{409, "Conflict", "The state of the object does not allow the change. With the reason `referenced`, others need the object.", "", ""},
	{412, "PreconditionFailed", "The object is not as If-Match or its etag says: nothing changed.", "", ""},
	{413, "TooLarge", "The body is larger than the server's limit.", "", ""},
	{415, "UnsupportedMediaType", "The body is not JSON.", "", ""},
	{422, "KeyReused", "The idempotency key belongs to a request with other input.", "", ""},
	{429, "TooMany", "A limit is reached. With the reason `busy`, the request succeeds later.", "Retry-After", "the seconds to wait; absent: unknown"},
	{503, "Unavailable", "The server cannot answer now: repeat the request.", "", ""},
}

// refusals returns the components that operations refer to.
func refusals() object[*response] {
	var out object[*response]
	for _, r := range append(slices.Clone(statuses), refusal{name: "Refused", text: "The request failed."}) {
		answer := &response{Description: r.text}
		if r.header != "" {
			answer.Headers.add(r.header, &header{r.about, &schema{Type: "string"}})
		}
		answer.Content.add(jsonType, media{&schema{Ref: "#/components/schemas/Error"}})
		out.add(r.name, answer)
	}
	return out
}

// errorSchemas are the bodies of refused requests, as the gateway writes them.
func errorSchemas() map[string]*schema {
	failure := &schema{Type: "object", Description: "The body of every refused request.", Required: []string{"code", "message"}}
	failure.Properties.add("code", &schema{Type: "integer", Format: "int32", Description: "The status code of gRPC, as 5 for NOT_FOUND."})
	failure.Properties.add("message", &schema{Type: "string", Description: "What failed, why, and what to do."})
	failure.Properties.add("reason", &schema{Type: "string", Description: "The reason for programs: changed, referenced, key_reused, change_set or busy. Absent: there is none."})
	problem := &schema{Type: "object", Required: []string{"index", "code", "message"}}
	problem.Properties.add("index", &schema{Type: "integer", Format: "int32", Description: "The change in the request, from 0."})
	problem.Properties.add("code", failure.Properties.members[0].value)
	problem.Properties.add("message", failure.Properties.members[1].value)
	failure.Properties.add("problems", &schema{Type: "array", Items: problem, Description: "Of a change set: the changes that are refused, the first 20. Absent: there are none."})

	last := &schema{Type: "object", Description: "The last line of a stream that failed after it had begun.", Required: []string{"code", "message", "details"}}
	last.Properties.add("code", failure.Properties.members[0].value)
	last.Properties.add("message", failure.Properties.members[1].value)
	last.Properties.add("details", &schema{Type: "array", Items: &schema{Type: "object", AdditionalProperties: &schema{}}})
	return map[string]*schema{"Error": failure, "StreamError": last}
}

// responses adds the answer of a method, and its refusals.
func (g *generator) responses(op *operation, m method, verb string, variables []string) error {
	ok, err := g.success(m)
	if err != nil {
		return err
	}
	status := "200"
	if isCreate(m) {
		status = "201"
	}
	op.Responses.add(status, ok)
	g.refuse(op, func(status int) bool {
		in := m.Input().Fields()
		switch status {
		case 400, 429, 503:
			return true
		case 401, 403:
			return op.Security == nil
		case 404:
			return verb != "put" && slices.ContainsFunc(variables, func(v string) bool { return v != "app" })
		case 409:
			return verb == "delete" && in.ByName("force") != nil || in.ByName("expect_version") != nil || isCreate(m)
		case 412:
			return in.ByName("if_match") != nil
		case 413, 415:
			return m.rule.Body != ""
		case 422:
			return in.ByName("idempotency_key") != nil
		}
		return false
	})
	return nil
}

// refuse adds the refusals of the statuses that an operation has, and of all others.
func (g *generator) refuse(op *operation, has func(status int) bool) {
	for _, r := range statuses {
		if has(r.status) {
			op.Responses.add(strconv.Itoa(r.status), &response{Ref: "#/components/responses/" + r.name})
		}
	}
	op.Responses.add("default", &response{Ref: "#/components/responses/Refused"})
}

// isCreate reports whether a method makes an object that must not exist: its answer is 201.
func isCreate(m method) bool { return strings.HasPrefix(string(m.Name()), "Create") }

// success returns the answer of a method that has not failed.
func (g *generator) success(m method) (*response, error) {
	ref, err := g.schemas.reference(m.Output())
	if err != nil {
		return nil, err
	}
	out := &response{Description: "The method succeeded."}
	switch {
	case m.IsStreamingServer():
		line := &schema{Type: "object", Description: "One line: a result, or the error that ended the stream."}
		line.Properties.add("result", ref)
		line.Properties.add("error", &schema{Ref: "#/components/schemas/StreamError"})
		out.Description = "One JSON object on each line, until the stream ends. The schema is that of one line."
		out.Content.add(jsonType, media{line})
		return out, nil
	case hasEtag(m.Output()):
		if isCreate(m) {
			out.Headers.add("Location", &header{"The path of the new object.", &schema{Type: "string"}})
		}
		out.Headers.add("ETag", &header{"The etag of the definition, in quotes: the value for If-Match.", &schema{Type: "string"}})
	}
	out.Content.add(jsonType, media{ref})
	return out, nil
}

// hasEtag reports whether a message is or has an object with an etag.
func hasEtag(m protoreflect.MessageDescriptor) bool {
	if m.Fields().ByName("etag") != nil {
		return true
	}
	f := m.Fields().ByName("job")
	return f != nil && f.Message() != nil && f.Message().Fields().ByName("etag") != nil
}

// upload adds the upload of a module, which is no method of the gateway: the console
// streams the body of the request to PushModule.
func (g *generator) upload(methods []method) error {
	i := slices.IndexFunc(methods, func(m method) bool { return m.Name() == "GetModule" })
	if i < 0 {
		return nil
	}
	get := methods[i]
	push := get.Parent().(protoreflect.ServiceDescriptor).Methods().ByName("PushModule")
	if push == nil {
		return errors.New("there is no method PushModule to describe uploads")
	}
	ref, err := g.schemas.reference(push.Output())
	if err != nil {
		return err
	}
	_, template := get.call()
	path, variables := plainPath(template)
	op := &operation{
		Tags: []string{string(get.Parent().Name())}, OperationID: string(get.Parent().Name()) + "_" + string(push.Name()),
		Summary:     "Uploads a version of a module",
		Description: fmt.Sprintf("The body is the WebAssembly module itself, at most 64 MiB. Versions never change: the same version again needs the same bytes.\n\nNeeds the permission `%s`.", g.types.permission(push)),
		RequestBody: &body{Required: true, Description: "the bytes of the module"},
	}
	op.RequestBody.Content.add("application/wasm", media{&schema{Type: "string", Format: "binary"}})
	for _, v := range variables {
		f, err := fieldAt(get.Input(), v)
		if err != nil {
			return err
		}
		p, err := g.pathParameter(f)
		if err != nil {
			return err
		}
		p.Description = ""
		op.Parameters = append(op.Parameters, p)
	}
	op.Parameters = append(op.Parameters, parameter{Name: "X-Wheelwork-Manifest", In: "header", Description: "The manifest of the module as JSON, if the module has none.", Schema: &schema{Type: "string"}})
	for status, text := range map[string]string{"200": "The version exists with the same bytes.", "201": "The version is new."} {
		answer := &response{Description: text}
		answer.Content.add(jsonType, media{ref})
		op.Responses.add(status, answer)
	}
	slices.SortFunc(op.Responses.members, func(a, b member[*response]) int { return strings.Compare(a.name, b.name) })
	g.refuse(op, func(status int) bool { return slices.Contains([]int{400, 401, 403, 409, 429, 503}, status) })
	return g.place(path, "put", op)
}

// publish adds the method that takes events, which is no method of the gateway: the console passes
// on the body as the sender has signed it, with its headers.
func (g *generator) publish(methods []method) error {
	i := slices.IndexFunc(methods, func(m method) bool { return m.Name() == "ListEventSources" })
	if i < 0 {
		return nil
	}
	list := methods[i]
	publish := list.Parent().(protoreflect.ServiceDescriptor).Methods().ByName("PublishEvent")
	if publish == nil {
		return errors.New("there is no method PublishEvent to describe events")
	}
	ref, err := g.schemas.reference(publish.Output())
	if err != nil {
		return err
	}
	app, err := fieldAt(publish.Input(), "app")
	if err != nil {
		return err
	}
	path, err := g.pathParameter(app)
	if err != nil {
		return err
	}
	op := &operation{
		Tags: []string{string(list.Parent().Name())}, OperationID: string(list.Parent().Name()) + "_" + string(publish.Name()),
		RequestBody: &body{Required: true, Description: "One event or a batch of events of CloudEvents 1.0, at most 256 KiB. A body of another type is the data of an event whose attributes are in headers that begin with ce-."},
		Security:    &[]map[string][]string{},
	}
	op.Summary, op.Description = sentences(string(publish.Name()), comment(publish))
	text := &schema{Type: "string"}
	op.Parameters = append(
		op.Parameters, path,
		parameter{Name: "source", In: "query", Required: true, Description: "The name of the event source.", Schema: text},
		parameter{Name: "Webhook-Id", In: "header", Required: true, Description: "The id of the message, the same at every attempt.", Schema: text},
		parameter{Name: "Webhook-Timestamp", In: "header", Required: true, Description: "The time of the attempt, in seconds since 1970. It may differ by 5 minutes from the time of the server.", Schema: text},
		parameter{Name: "Webhook-Signature", In: "header", Required: true, Description: "Signatures of Standard Webhooks, as v1,BASE64, divided by spaces.", Schema: text},
	)
	for _, kind := range []string{"application/cloudevents+json", "application/cloudevents-batch+json"} {
		op.RequestBody.Content.add(kind, media{&schema{}})
	}
	answer := &response{Description: "The runs that the events have started are durable."}
	answer.Content.add(jsonType, media{ref})
	op.Responses.add("202", answer)
	g.refuse(op, func(status int) bool { return slices.Contains([]int{400, 401, 403, 413, 429, 503}, status) })
	return g.place("/api/v1/apps/{app}/events", "post", op)
}
