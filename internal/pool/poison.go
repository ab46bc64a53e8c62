//go:build poison

package pool

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// quarantined is the number of released objects that a pool checks for changes.
const quarantined = 256

// quarantine holds the objects that were released last. It never returns them for reuse.
type quarantine[T any] struct {
	mu       sync.Mutex
	released []*T // oldest first
}

// hold overwrites a released object. It panics if the object was released before, or if
// the oldest object has changed since it was released.
func (q *quarantine[T]) hold(t *T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Contains(q.released, t) {
		panic(fmt.Sprintf("pool: a %T was released twice", t))
	}
	overwrite(reflect.ValueOf(t).Elem())
	q.released = append(q.released, t)
	if len(q.released) > quarantined {
		oldest := q.released[0]
		q.released = slices.Delete(q.released, 0, 1)
		want := new(T)
		overwrite(reflect.ValueOf(want).Elem())
		if !reflect.DeepEqual(oldest, want) {
			panic(fmt.Sprintf("pool: a %T was changed after its release: %+v", t, oldest))
		}
	}
	return true
}

// overwrite replaces the fields of an object and the elements of its slices by values that
// no caller expects. It does not change the bytes of slices and the objects behind
// pointers, which may have other owners; a slice of bytes that is itself the object is
// overwritten.
func overwrite(v reflect.Value) {
	if b, ok := v.Addr().Interface().(*[]byte); ok {
		all := (*b)[:cap(*b)]
		for i := range all {
			all[i] = 0xdd
		}
		*b = nil
		return
	}
	replace(v)
}

// poison is the text in the texts and bytes of a released object.
const poison = "released to its pool"

func replace(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		_, message := v.Addr().Type().MethodByName("ProtoReflect") // its unexported fields belong to protobuf
		for i := range v.NumField() {
			f := v.Field(i)
			if !v.Type().Field(i).IsExported() {
				if message {
					continue
				}
				f = reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()
			}
			replace(f)
		}
	case reflect.Array:
		for i := range v.Len() {
			replace(v.Index(i))
		}
	case reflect.Slice:
		switch v.Type().Elem().Kind() {
		case reflect.Uint8:
			v.SetBytes([]byte(poison))
			return
		case reflect.Struct: // the elements are memory of the object
			for all, i := v.Slice(0, v.Cap()), 0; i < all.Len(); i++ {
				replace(all.Index(i))
			}
		}
		v.SetZero()
	case reflect.String:
		v.SetString(poison)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(-0x2152)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(0xdead)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(-0xdead)
	default:
		v.SetZero()
	}
}
