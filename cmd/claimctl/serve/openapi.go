package serve

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var document []byte

// documentJSON returns the OpenAPI document.
var documentJSON = sync.OnceValues(func() ([]byte, error) {
	var v map[string]any
	if err := yaml.Unmarshal(document, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
})

func (s *Server) getDocument(w http.ResponseWriter, _ *http.Request) error {
	text, err := documentJSON()
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, json.RawMessage(text))
}
