// Package access has the commands about who may do what: whoami, token, binding and audit.
package access
