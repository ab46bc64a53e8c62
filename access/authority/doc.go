// Package authority signs and reads the certificates of the machines of an installation: its hosts and
// its servers.
//
// A certificate says in one URI what its machine is:
//
//	wheelwork://INSTALLATION/host/ID?app=shop&label=zone%3Da&executor=wasi-p1
//
// The installation is the beginning of the digest of the authority's key, so the certificates of two
// installations cannot be confused, and a certificate that an operator's authority signed for another
// purpose has no such URI and is not one of a machine. All functions are pure: they read no clock and
// no file.
package authority
