// Package access has the commands about access: whoami, token, binding and audit.
package access
