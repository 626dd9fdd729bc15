package attack

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/freeport"
	"evenkeel/test/patience"
)

// awaitMax is how long a test waits for what a quiet machine does within seconds. It proves nothing about speed.
const awaitMax = 90 * time.Second

// stalls of this machine. Limits on how soon servers act are limits on the time in which it ran.
var stalls = patience.WatchStalls(context.Background())

// long says whether the long forms of the tests run.
func long() bool { return os.Getenv("EVENKEEL_ATTACK_LONG") == "1" }

// programs are built at most once, by the first test that needs one.
var programs struct {
	sync.Mutex
	dir   string
	paths map[string]string
}

// program is the path of vcd or vcctl: what the environment names, or what this tree builds to.
func program(name string) (string, error) {
	if path := os.Getenv("EVENKEEL_" + strings.ToUpper(name)); path != "" {
		return path, nil
	}
	programs.Lock()
	defer programs.Unlock()
	if path := programs.paths[name]; path != "" {
		return path, nil
	}
	if programs.dir == "" {
		dir, err := os.MkdirTemp("", "evenkeel-attack-")
		if err != nil {
			return "", err
		}
		programs.dir, programs.paths = dir, map[string]string{}
	}
	path := filepath.Join(programs.dir, name)
	said, err := exec.Command("go", "build", "-tags", "libvirt_dlopen,hashicorpmetrics", "-o", path, "evenkeel/cmd/"+name).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w: %s", name, err, said)
	}
	programs.paths[name] = path
	return path, nil
}

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given { // the tests wait more than they compute
		_ = flag.Set("test.parallel", "4")
	}
	code := m.Run()
	if c := quiet.cluster; c != nil {
		if bad := c.panics(); len(bad) > 0 {
			fmt.Fprintln(os.Stderr, "panics of the servers that several tests attack:", bad)
			code = 1
		}
		c.stop()
	}
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir)
	}
	os.Exit(code)
}

// server is a vcd in a process of its own.
type server struct {
	name    string
	dir     string // data directory
	address string // of its port
	gossip  string
	socket  string
	config  string // vcd.yaml; "" for vcd dev
	log     string // a file
	files   int    // most descriptors; 0: as many as this process
	cmd     *exec.Cmd
}

// launch the process. It ends with this one.
func (s *server) launch(args ...string) error {
	path, err := program("vcd")
	if err != nil {
		return err
	}
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // the process has its own descriptor
	if s.files > 0 {
		s.cmd = exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, s.files), path}, args...)...)
	} else {
		s.cmd = exec.Command(path, args...)
	}
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return s.cmd.Start()
}

func (s *server) kill() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // it was killed: that is its status
		s.cmd = nil
	}
}

// memory that is the process's own, bytes.
func (s *server) memory() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("RssAnon is not in /proc/PID/status")
}

// logFile is the size of the Raft log's file, bytes.
func (s *server) logFile() (int64, error) {
	info, err := os.Stat(filepath.Join(s.dir, "raft", "raft.db"))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// cluster of three servers that are agents too, and a vcd dev beside it if one was asked for.
type cluster struct {
	dir     string
	id      string
	servers []*server // s1, s2, s3
	dev     *server   // nil: none
	token   string    // of an admin
	ca      string    // PEM file
	devTok  string
}

// options of a cluster.
type options struct {
	dev   bool
	files map[string]int // most descriptors, by name of the server
}

// start a cluster for one test.
func start(t *testing.T, o options) *cluster {
	t.Helper()
	c, err := newCluster(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if bad := c.panics(); len(bad) > 0 {
			t.Errorf("panics: %q", bad)
		}
		if t.Failed() {
			c.tail(t)
		}
		c.stop()
	})
	return c
}

// quiet is the cluster of the tests that leave it as it was.
var quiet struct {
	sync.Mutex
	cluster *cluster
}

// reuse the cluster of the tests that leave it as it was, with a vcd dev.
func reuse(t *testing.T) *cluster {
	t.Helper()
	quiet.Lock()
	defer quiet.Unlock()
	if quiet.cluster == nil {
		c, err := newCluster(context.Background(), options{dev: true})
		if err != nil {
			t.Fatal(err)
		}
		quiet.cluster = c
	}
	c := quiet.cluster
	t.Cleanup(func() {
		if t.Failed() {
			c.tail(t)
		}
	})
	return c
}

func newCluster(ctx context.Context, o options) (*cluster, error) {
	dir, err := os.MkdirTemp("", "ek") // short: the kernel allows a socket 107 bytes
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir}
	if err := c.begin(ctx, o); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func (c *cluster) begin(ctx context.Context, o options) error {
	for i := range 3 {
		name := fmt.Sprintf("s%d", i+1)
		s := &server{name: name, dir: filepath.Join(c.dir, name, "data"), socket: filepath.Join(c.dir, name, "sock"),
			config: filepath.Join(c.dir, name, "vcd.yaml"), log: filepath.Join(c.dir, name, "log"), files: o.files[name]}
		var err1, err2 error
		s.address, err1 = freeport.Address()
		s.gossip, err2 = freeport.Address()
		text := fmt.Sprintf("name: %s\nserver: true\nagent: true\nlisten: %s\nadvertise: %s\ngossip: %s\ndataDir: %s\nsocket: %s\nhypervisor: simulated\nlogLevel: debug\n",
			name, s.address, s.address, s.gossip, s.dir, s.socket)
		if err := errors.Join(err1, err2, os.MkdirAll(filepath.Dir(s.config), 0o700), os.WriteFile(s.config, []byte(text), 0o600)); err != nil {
			return err
		}
		if err := s.launch("run", "--config", s.config); err != nil {
			return err
		}
		c.servers = append(c.servers, s)
	}
	if o.dev {
		if err := c.startDev(); err != nil {
			return err
		}
	}
	if err := c.join(ctx); err != nil {
		return err
	}
	if err := c.await(ctx, "three healthy servers and hosts", c.healthy); err != nil {
		return err
	}
	for _, s := range c.servers { // one that was just started does not know yet which tokens there are
		if err := c.await(ctx, s.name+" has caught up", func(ctx context.Context) error {
			api, err := client.New(client.Config{Address: s.address, CAFile: c.ca, Token: "ekt_0123456789abcdef." + strings.Repeat("a", 43)})
			if err != nil {
				return err
			}
			defer api.Close()
			if _, err = api.Hosts(ctx); !client.IsProblem(err, v1.ProblemUnauthorized) {
				return fmt.Errorf("an unknown token: %v", err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// join makes the cluster on s1 and lets the others in.
func (c *cluster) join(ctx context.Context) error {
	for _, s := range c.servers {
		if err := c.await(ctx, s.name+" answers on its socket", func(ctx context.Context) error { _, err := client.NewLocal(s.socket).Setup(ctx); return err }); err != nil {
			return err
		}
	}
	first := c.servers[0]
	made, err := client.NewLocal(first.socket).Init(ctx, v1.SetupInit{})
	if err != nil {
		return err
	}
	c.id, c.token, c.ca = made.Cluster, made.AdminToken, filepath.Join(c.dir, "ca.pem")
	if err := os.WriteFile(c.ca, []byte(made.CA), 0o600); err != nil {
		return err
	}
	for _, s := range c.servers[1:] {
		var k v1.JoinToken
		if err := c.await(ctx, "a join token", func(ctx context.Context) error {
			api, err := c.client(first)
			if err != nil {
				return err
			}
			k, err = api.MakeJoinToken(ctx, v1.JoinTokenRequest{Server: true, Agent: true})
			return err
		}); err != nil {
			return err
		}
		if _, err := client.NewLocal(s.socket).Join(ctx, v1.SetupJoin{Token: k.Token, Addresses: []string{first.address}}); err != nil {
			return fmt.Errorf("join of %s: %w", s.name, err)
		}
	}
	return nil
}

func (c *cluster) startDev() error {
	s := &server{name: "dev", dir: filepath.Join(c.dir, "dev", "data"), log: filepath.Join(c.dir, "dev", "log")}
	var err error
	if s.address, err = freeport.Address(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.log), 0o700); err != nil {
		return err
	}
	if err := s.launch("dev", "--data-dir", s.dir, "--listen", s.address, "--hypervisor", "simulated", "--hosts", "2", "--guest", "", "--log-level", "debug"); err != nil {
		return err
	}
	c.dev = s
	return c.await(context.Background(), "vcd dev serves", func(context.Context) error {
		b, err := os.ReadFile(s.log)
		if err == nil && !bytes.Contains(b, []byte("ready https://")) {
			err = fmt.Errorf("it says %q", b)
		}
		if err != nil {
			return err
		}
		b, err = os.ReadFile(filepath.Join(s.dir, "admin.token"))
		c.devTok = strings.TrimSpace(string(b))
		return err
	})
}

// client of one server, with the admin token.
func (c *cluster) client(s *server) (*client.Client, error) {
	token, ca := c.token, c.ca
	if s == c.dev {
		token, ca = c.devTok, filepath.Join(s.dir, "ca.pem")
	}
	return client.New(client.Config{Address: s.address, Token: token, CAFile: ca, Timeout: 20 * time.Second})
}

// must be a client of one server.
func (c *cluster) must(t *testing.T, s *server) *client.Client {
	t.Helper()
	api, err := c.client(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	return api
}

// healthy is nil when all servers vote and are healthy, and all hosts are ready and hold their leases.
func (c *cluster) healthy(ctx context.Context) error {
	api, err := c.client(c.servers[0])
	if err != nil {
		return err
	}
	defer api.Close()
	return c.healthyBy(ctx, api)
}

func (c *cluster) healthyBy(ctx context.Context, api *client.Client) error {
	members, err := api.Members(ctx)
	if err != nil {
		return err
	}
	hosts, err := api.Hosts(ctx)
	if err != nil {
		return err
	}
	if len(members) != 3 || len(hosts) != 3 {
		return fmt.Errorf("%d members, %d hosts", len(members), len(hosts))
	}
	for _, m := range members {
		if !m.Voter || !m.Healthy {
			return fmt.Errorf("server %s: voter %v, healthy %v, %s", m.Name, m.Voter, m.Healthy, m.Trouble)
		}
	}
	for _, h := range hosts {
		if h.State != "ready" || h.Lease != "held" {
			return fmt.Errorf("host %s is %s, its lease is %s: %s", h.Name, h.State, h.Lease, h.Error)
		}
	}
	return nil
}

// leader and the two followers.
func (c *cluster) roles(t *testing.T) (leader *server, followers []*server) {
	t.Helper()
	c.eventually(t, "a leader", func(ctx context.Context) error {
		st, err := c.must(t, c.servers[0]).Status(ctx)
		if err != nil {
			return err
		}
		leader, followers = nil, nil
		for _, s := range c.servers {
			if s.name == st.Leader {
				leader = s
			} else {
				followers = append(followers, s)
			}
		}
		if leader == nil {
			return fmt.Errorf("%q leads", st.Leader)
		}
		return nil
	})
	return leader, followers
}

// targets are the servers that answer strangers: the leader, the followers, and dev if there is one.
func (c *cluster) targets(t *testing.T) []*server {
	t.Helper()
	leader, followers := c.roles(t)
	out := append([]*server{leader}, followers...)
	if c.dev != nil {
		out = append(out, c.dev)
	}
	return out
}

// role of a server, for people.
func (c *cluster) role(t *testing.T, s *server) string {
	t.Helper()
	if s == c.dev {
		return "dev"
	}
	leader, _ := c.roles(t)
	if s == leader {
		return "leader " + s.name
	}
	return "follower " + s.name
}

// tokenOf an admin of a server.
func (c *cluster) tokenOf(s *server) string {
	if s == c.dev {
		return c.devTok
	}
	return c.token
}

func (c *cluster) all() []*server {
	if c.dev == nil {
		return c.servers
	}
	return append(slices.Clone(c.servers), c.dev)
}

func (c *cluster) stop() {
	for _, s := range c.all() {
		s.kill()
	}
	_ = os.RemoveAll(c.dir)
}

// panics in the servers' logs.
func (c *cluster) panics() []string {
	var out []string
	for _, s := range c.all() {
		b, err := os.ReadFile(s.log)
		if err != nil {
			out = append(out, err.Error())
		}
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.Contains(line, "panic in a request") || strings.Contains(line, "http: panic serving") || strings.Contains(line, "http2: panic serving") {
				out = append(out, s.name+": "+line)
			}
		}
	}
	return out
}

// tail shows the last lines of the logs.
func (c *cluster) tail(t *testing.T) {
	for _, s := range c.all() {
		b, err := os.ReadFile(s.log)
		if err != nil {
			t.Log(err)
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		for i, l := range lines {
			lines[i] = l[:min(len(l), 300)]
		}
		t.Logf("last lines of %s:\n%s", s.name, strings.Join(lines[max(0, len(lines)-6):], "\n"))
	}
}

// await asks until there is no error.
func (c *cluster) await(ctx context.Context, what string, ask func(context.Context) error) error {
	return patience.Ask(ctx, awaitMax, what, ask)
}

// awaitFor is await with a limit on the whole time: what must hold under an attack must hold within it.
func awaitFor(ctx context.Context, within time.Duration, what string, ask func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, patience.Within(within))
	defer cancel()
	return patience.Ask(bounded, within, what, ask)
}

func (c *cluster) eventually(t *testing.T, what string, ask func(context.Context) error) {
	t.Helper()
	if err := c.await(t.Context(), what, ask); err != nil {
		t.Fatal(err)
	}
}
