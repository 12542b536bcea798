// http.go - the Go peer of the JSON row: net/http and encoding/json, as most services are written.
// It reads the same object into a struct and answers the same bytes as bench-httpd's POST /json.
//
// usage: http ADDR:PORT
package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
)

type job struct {
	Name  string   `json:"name"`
	Count int64    `json:"count"`
	Tags  []string `json:"tags"`
}

type result struct {
	Name    string   `json:"name"`
	Count   int64    `json:"count"`
	Tags    []string `json:"tags"`
	OK      bool     `json:"ok"`
	State   string   `json:"state"`
	Created string   `json:"createdAt"`
	Node    string   `json:"node"`
}

func answer(w http.ResponseWriter, r *http.Request) {
	var in job
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &in)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := json.Marshal(result{in.Name, in.Count + 1, in.Tags, true, "running",
		"2025-01-01T00:00:00Z", "node-1"})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(out)
}

func main() {
	http.HandleFunc("/json", answer)
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
