// Package document is the language of definitions: the documents that people write, compare
// and apply. One table of fields for each kind ([Kinds]) is the source of the reader
// ([Parse]), the writer ([Marshal]), the JSON Schema ([Kind.Schema]), the help of fields and
// the reference pages.
//
// A document is one mapping of YAML or JSON. Its field kind names the kind, by default Job,
// and its other fields are those of the message of the API that the kind is sent as. The
// reader checks the names, the types and the plain bounds of fields. What needs other fields
// or other objects to decide is checked by the server.
package document
