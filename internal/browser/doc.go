// Package browser tests the page of package webui in headless Chromium. It has no code.
//
// Without a Chromium in the PATH (Debian: chromium) its tests are skipped.
//
//	go test ./...
//	go test -run TestScreenshot -update    # draws docs/webui.png again
package browser
