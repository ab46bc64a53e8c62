// Package oidc signs people in at an OpenID Connect provider, with the authorization code flow and PKCE.
//
// A sign-in has two steps. [Provider.Begin] returns the address to which the browser goes, and a
// [Pending] that the caller keeps with this browser. The provider sends the browser back, and
// [Provider.Finish] verifies its answer with the Pending and returns the person. This package starts no
// session and knows no roles.
package oidc
