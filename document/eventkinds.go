package document

import (
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

var eventSourceKind = &Kind{
	Name:    "EventSource",
	Help:    "An event source admits the events of one sender, which start the jobs whose `trigger` fits.",
	message: func() proto.Message { return &apiv1.EventSource{} },
	identity: func(m proto.Message) (app, name string) {
		s := m.(*apiv1.EventSource)
		return s.GetApp(), s.GetName()
	},
	Fields: []Field{
		{Path: "app", Type: Text, Default: "default", Help: "The app whose jobs the events start, and whose secrets have the key.", Example: "shop"},
		{Path: "name", Type: Text, Required: true, Help: "The identity of the event source in its app: letters, digits, `.`, `_`, `-`, at most 128.", Example: "shop"},
		{Path: "description", Type: Text, Help: "Who sends the events.", Example: "the orders of the shop"},
		{Path: "labels", Type: Map, Help: "Labels for people and for filters, at most 64.", Example: "{team: money}"},
		{Path: "secret", Type: Object, Required: true, Help: "The key with which the sender signs: `whsec_` and a key in base64, as Standard Webhooks says.", Example: "{secret: shop-key}"},
		{Path: "secret.secret", Type: Text, Required: true, Help: "The name of a secret of the app that has it.", Example: "shop-key"},
		{Path: "previous", Type: Object, Help: "A key that is valid too, while senders change to the other one.", Example: "{secret: old-shop-key}"},
		{Path: "previous.secret", Type: Text, Required: true, Help: "The name of a secret of the app that has it.", Example: "old-shop-key"},
		{Path: "types", Type: Texts, Help: "The types of events that are admitted, at most 100; without it all types.", Example: "[com.example.order.paid]"},
		{Path: "paused", Type: Truth, Default: "false", Help: "Whether events are refused.", Example: "true"},
		{Path: "rate", Type: Whole, Default: "0", Unit: "events", Bounds: between(0, 10_000), Help: "The most events in a second; 0: 100.", Example: "10"},
	},
	ServerFields: map[string]string{"updated_at": "the time of the last change", "revision": "the number of the last change"},
}
