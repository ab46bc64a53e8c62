package document

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// subscriptionKind is a kind of documents that the server does not know: [Parse] replaces one
// document by an alert channel and an alert rule of its name (ADR 78).
var subscriptionKind = indexed(&Kind{
	Name: "Subscription",
	Help: "A subscription sends an event for each run that ends to another program. It is short for an alert channel with `cloudevents` and an alert rule of its name, and commands show these two.",
	Fields: concat([]Field{
		{Path: "app", Type: Text, Default: "default", Help: "The app whose runs are sent, and whose secrets the subscription may name.", Example: "shop"},
		{Path: "name", Type: Text, Required: true, Help: "The name of the channel and of the rule: letters, digits, `.`, `_`, `-`, at most 128.", Example: "warehouse"},
		{Path: "description", Type: Text, Help: "What the receiver does with the events.", Example: "orders that were imported"},
		{Path: "labels", Type: Map, Help: "Labels for people and for filters, at most 64.", Example: "{team: money}"},
		{Path: "events", Type: Texts, Default: "[succeeded, failed, timed_out]", Enum: []string{"succeeded", "failed", "retry_exhausted", "timed_out"}, Help: "The ends of runs that are sent.", Example: "[succeeded]"},
		{Path: "select", Type: Object, Help: "The jobs whose runs are sent; without it all jobs.", Example: "{jobs: [\"import-*\"]}"},
		{Path: "select.jobs", Type: Texts, Help: "Names, or patterns with `*` and `?`.", Example: "[\"import-*\"]"},
		{Path: "select.labels", Type: Map, Help: "Labels that a job has; the value `*` is any value.", Example: "{team: money}"},
		{Path: "select.owners", Type: Texts, Help: "Owners, of which a job has one.", Example: "[ann]"},
		{Path: "url", Type: Text, Required: true, Help: "The address of the receiver.", Example: "\"https://example.com/events\""},
		{Path: "mode", Type: Text, Default: "structured", Enum: []string{"structured", "binary"}, Help: "Where the attributes of an event are: in the body, or in headers.", Example: "binary"},
	}, secretFields("secret", "The key of the signature: `whsec_` and a key in base64.", true)),
})[0]

// isSubscription reports whether a mapping says that it is a subscription, and returns the field
// that does.
func isSubscription(n *yaml.Node) (kind *yaml.Node, is bool) {
	if n.Kind != yaml.MappingNode {
		return nil, false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key, value := resolve(n.Content[i]), resolve(n.Content[i+1]); key.Kind == yaml.ScalarNode && key.Value == "kind" {
			return value, value.Kind == yaml.ScalarNode && strings.EqualFold(value.Value, subscriptionKind.Name)
		}
	}
	return nil, false
}

// subscription returns the mappings of a channel and of a rule. The values in them are nodes of
// the source, so that mistakes have its positions.
func (p *parser) subscription(n, kind *yaml.Node) []*yaml.Node {
	if p.opts.Only {
		p.fail(kind, "kind", "kind is %s: want documents of the kind %s only", subscriptionKind.Name, p.fallback().Name)
		return nil
	}
	fields := p.subscriptionFields(n)
	for _, f := range subscriptionKind.Children("") {
		if f.Required && fields[f.Path] == nil {
			p.failValue(n, f.Path, "%s is missing", f.Path)
		}
	}
	if events := fields["events"]; events != nil && events.Kind == yaml.SequenceNode {
		known := subscriptionKind.Field("events").Enum
		for _, e := range events.Content {
			if e = resolve(e); !slices.Contains(known, e.Value) {
				p.failValue(e, "events", "events: %q is not the end of a run: want one of %s", e.Value, strings.Join(known, ", "))
			}
		}
	}
	if len(p.problems) > 0 {
		return nil
	}
	own := func(text string) *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: n.Line, Column: n.Column}
	}
	list := func(texts ...*yaml.Node) *yaml.Node {
		return &yaml.Node{Kind: yaml.SequenceNode, Content: texts, Line: n.Line, Column: n.Column}
	}
	type pair struct {
		name  string
		value *yaml.Node // nil: the mapping does not have it
	}
	mapping := func(pairs ...pair) *yaml.Node {
		m := &yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Column: n.Column}
		for _, x := range pairs {
			if x.value != nil {
				m.Content = append(m.Content, own(x.name), x.value)
			}
		}
		return m
	}
	half := func(kind string, rest ...pair) *yaml.Node {
		both := []pair{{"kind", own(kind)}}
		for _, name := range []string{"app", "name", "description", "labels"} {
			both = append(both, pair{name, fields[name]})
		}
		return mapping(append(both, rest...)...)
	}
	events, channels := fields["events"], list()
	if events == nil {
		events = list(own("succeeded"), own("failed"), own("timed_out"))
	}
	if fields["name"] != nil {
		channels = list(fields["name"])
	}
	return []*yaml.Node{
		half(alertChannelKind.Name,
			pair{"cloudevents", mapping(pair{"url", fields["url"]}, pair{"mode", fields["mode"]}, pair{"secret", fields["secret"]})}),
		half(alertRuleKind.Name,
			pair{"events", events}, pair{"select", fields["select"]}, pair{"severity", own("info")}, pair{"group_by", list(own("run"))},
			pair{"wait", own("0s")}, pair{"repeat", own("0s")}, pair{"channels", channels}),
	}
}

// subscriptionFields returns the values of a mapping by the names of the fields. A null is as if
// left out.
func (p *parser) subscriptionFields(n *yaml.Node) map[string]*yaml.Node {
	seen, fields := map[string]bool{}, map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		f := subscriptionKind.child("", key.Value)
		switch {
		case key.Kind != yaml.ScalarNode || f == nil && key.Value != "kind":
			p.fail(key, key.Value, "unknown field %q%s", key.Value, subscriptionKind.suggestion("", key.Value))
		case seen[key.Value]:
			p.fail(key, key.Value, "%s is set twice", key.Value)
		case f != nil && !isNull(value):
			fields[f.Path] = value
		}
		seen[key.Value] = true
	}
	return fields
}
