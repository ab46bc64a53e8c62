// Package openapi writes the OpenAPI 3.1 document of the methods that .proto files offer
// over HTTP/JSON: those with the option google.api.http.
//
// It describes what the gateway of the console does, which the plugins for protoc do not
// know: the form of its errors, the headers of conditional changes and of idempotency
// keys, the statuses, and messages whose fields are all present. protoc-gen-openapiv2
// writes Swagger 2.0, which current generators of clients refuse; gnostic's
// protoc-gen-openapi writes OpenAPI 3.0 with the errors of google.rpc. A conversion of
// either would replace nearly all of what they write.
//
// Texts come from the comments of the .proto files. A method without a comment is an
// error.
package openapi
