// Package access has the commands about who may do what: whoami, token and binding.
package access
