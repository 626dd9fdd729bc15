package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"evenkeel/api/v1"
)

// An image of a tenant is its own: no other one sees it or can name it, in any request. Its name is one in the tenant, and its file
// counts there.
func TestImagesOfTenants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 1)
		image := func(name, more string) string {
			return fmt.Sprintf(`{"name":%q,"kind":"kernel","file":"/images/secretplace","size":1048576%s}`, name, more)
		}
		group := func(vc, more string) string {
			return fmt.Sprintf(`{"name":%q,"groups":[{"name":"a","cpu":0.01,"memory":"64MiB",%s}]}`, vc, more)
		}
		x.want(201, "POST", "/v1/images?tenant=acme", `{"name":"rd","kind":"initrd","file":"/images/rd"}`, "operator")
		x.want(201, "POST", "/v1/images?tenant=acme", image("own", `,"initrd":"rd"`), "operator")
		x.want(422, "POST", "/v1/images?tenant=film", image("other", `,"initrd":"rd"`), "operator") // the initrd is acme's
		x.want(422, "POST", "/v1/images", image("public", `,"initrd":"rd"`), "operator")
		x.want(404, "POST", "/v1/images?tenant=absent", image("own", ""), "operator")
		x.want(422, "POST", "/v1/images?tenant=film", image("acme/own", ""), "operator")
		x.want(201, "POST", "/v1/images", image("public", ""), "operator")
		x.want(201, "POST", "/v1/images?tenant=film", image("public", `,"cmdline":"of film"`), "operator")

		list := func(caller, path string) string {
			var out v1.List[v1.Image]
			must(t, json.Unmarshal([]byte(x.want(200, "GET", path, "", caller)), &out))
			var names []string
			for _, i := range out.Items {
				if strings.HasSuffix(caller, "viewer") && i.File != "" {
					t.Errorf("%s sees where %s lies", caller, i.Name)
				}
				if i.Name != "tiny" {
					names = append(names, i.Tenant+":"+i.Name)
				}
			}
			return strings.Join(names, " ")
		}
		for _, c := range [][3]string{
			{"acme viewer", "/v1/images", "acme:own acme:rd :public"},
			{"film viewer", "/v1/images", "film:public"}, // instead of the one that is open to all
			{"operator", "/v1/images", "acme:own acme:rd film:public :public"},
			{"operator", "/v1/images?tenant=film", "film:public"},
			{"operator", "/v1/images?tenant=default", ":public"},
		} {
			if got := list(c[0], c[1]); got != c[2] {
				t.Errorf("%s, %s: %s, want %s", c[0], c[1], got, c[2])
			}
		}
		for _, name := range []string{"own", "acme%2Fown", "film%2Fpublic"} {
			for _, caller := range []string{"film viewer", "film editor", "film owner"} {
				x.want(404, "GET", "/v1/images/"+name, "", caller)
			}
		}

		// What names an image of another tenant is refused as what names none: create, apply, dry run, boot, rollback.
		for _, c := range [][2]string{{"POST", "/v1/virtual-clusters"}, {"POST", "/v1/virtual-clusters?dryRun=true"}, {"PUT", "/v1/virtual-clusters/probe"}, {"PUT", "/v1/virtual-clusters/probe?dryRun=true"}} {
			for _, format := range []string{`"image":%q`, `"boot":{"kernel":%q}`, `"boot":{"kernel":"public","initrd":%q}`} {
				var answers []string
				for _, name := range []string{"own", "rd", "none"} {
					resp, body := x.as("film editor", c[0], c[1], group("probe", fmt.Sprintf(format, name)), "X-Request-Id", "same")
					if resp.StatusCode < 400 {
						t.Errorf("film names %s of acme, %v: %s", name, c, body)
					}
					answers = append(answers, strings.ReplaceAll(body, `"`+name+`"`, "NAME"))
				}
				if answers[0] != answers[2] || answers[1] != answers[2] {
					t.Errorf("%v %s: %v", c, format, answers)
				}
			}
		}

		// Its holder names it as it is called there, and reads it so.
		x.want(202, "POST", "/v1/virtual-clusters", group("mine", `"image":"own"`), "acme editor")
		for _, path := range []string{"/v1/virtual-clusters/mine", "/v1/virtual-clusters/mine/spec", "/v1/vms", "/v1/virtual-clusters/mine/versions"} {
			if body := x.want(200, "GET", path, "", "acme editor"); strings.Contains(body, "acme/own") {
				t.Errorf("%s: %s", path, body)
			}
		}
		x.want(409, "DELETE", "/v1/images/own?tenant=acme", "", "operator") // it is in use
		x.want(404, "DELETE", "/v1/images/own?tenant=film", "", "operator")
		x.want(404, "DELETE", "/v1/images/own", "", "operator")

		var q v1.Quota
		must(t, json.Unmarshal([]byte(x.want(200, "PATCH", "/v1/quotas/acme", `{"limits":{"images":"2"}}`, "operator")), &q))
		if body := x.want(403, "POST", "/v1/images?tenant=acme", image("third", ""), "operator"); !strings.Contains(body, "quota images: limit 2, used 2, asked for 1 more") {
			t.Errorf("over quota: %s", body)
		}
		x.want(200, "PATCH", "/v1/quotas/film", `{"limits":{"disk":"1048577"}}`, "operator")
		if body := x.want(403, "POST", "/v1/images?tenant=film", image("more", ""), "operator"); !strings.Contains(body, "quota disk") {
			t.Errorf("over quota: %s", body)
		}
	})
}
