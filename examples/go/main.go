// Reads a buffer of one engine into a buffer of another, from Go through the C interface.
//
//	CGO_LDFLAGS_ALLOW=.* go run .   (with PKG_CONFIG_PATH and LD_LIBRARY_PATH where onesided is not installed in /usr)
package main

/*
#cgo pkg-config: onesided
#include <stdlib.h>
#include "onesided.h"
*/
import "C"

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

const nbytes = 16 << 20

// call runs f on one thread, because the text of an error belongs to the thread that failed.
func call(what string, f func() C.onesided_status) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if status := f(); status != C.ONESIDED_SUCCESS {
		fmt.Fprintf(os.Stderr, "%s: %s\n", what, C.GoString(C.onesided_last_error()))
		os.Exit(1)
	}
}

// side is an engine with one registered buffer. The memory is C's, so Go's collector never moves it.
type side struct {
	engine *C.onesided_engine
	buffer *C.onesided_buffer
	handle C.onesided_mem_handle
}

func open() *side {
	s := &side{}
	call("open an engine", func() C.onesided_status { return C.onesided_engine_open(nil, &s.engine) })
	call("allocate", func() C.onesided_status { return C.onesided_buffer_create(nbytes, 0, &s.buffer) })
	call("register", func() C.onesided_status {
		return C.onesided_register(s.engine, s.address(), nbytes, C.ONESIDED_MEMORY_HOST, &s.handle)
	})
	return s
}

func (s *side) address() unsafe.Pointer { return C.onesided_buffer_address(s.buffer) }
func (s *side) bytes() []byte           { return unsafe.Slice((*byte)(s.address()), nbytes) }
func (s *side) close() {
	C.onesided_engine_free(s.engine)
	C.onesided_buffer_free(s.buffer)
}

func main() {
	owner, reader := open(), open()
	defer owner.close()
	defer reader.close()
	for i := range owner.bytes() {
		owner.bytes()[i] = byte(i * 7)
	}
	id := C.CString(C.GoString(C.onesided_engine_id(owner.engine)))
	defer C.free(unsafe.Pointer(id))
	call("connect", func() C.onesided_status { return C.onesided_connect(reader.engine, id, 5000) })
	item := C.onesided_item{
		local:  C.uint64_t(uintptr(reader.address())),
		remote: C.uint64_t(uintptr(owner.address())),
		nbytes: nbytes,
	}
	call("read", func() C.onesided_status {
		return C.onesided_transfer_sync(reader.engine, id, C.ONESIDED_READ, &item, 1, 5000)
	})
	if !bytes.Equal(owner.bytes(), reader.bytes()) {
		fmt.Fprintln(os.Stderr, "the bytes differ")
		os.Exit(1)
	}
	fmt.Printf("read %d bytes from %s\n", nbytes, C.GoString(id))
}
