// Sends a body of so many bytes with Go's own client, and prints the status of the answer.
package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	size, err := strconv.Atoi(os.Args[2])
	check(err)
	request, err := http.NewRequest(http.MethodPut, os.Args[1], bytes.NewReader(make([]byte, size)))
	check(err)
	request.Header.Set("Fencing-Token", "1")
	client := http.Client{Timeout: 30 * time.Second}
	answer, err := client.Do(request)
	check(err)
	defer answer.Body.Close()
	fmt.Println(answer.StatusCode)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
