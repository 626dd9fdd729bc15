package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
)

const tagImage = "Images"

type imageAnswer struct {
	Status int
	Body   v1.Image
}

func (s *Server) registerImages(api huma.API) {
	get(api, route{"listImages", "/v1/images", tagImage, "List images", "The image catalogue by name. VC files name its entries; they never have paths. Of a tenant: its own, and those that are open to all."},
		func(ctx context.Context, in *struct {
			TenantParams
			ReadParams
		}) (*answerOf[v1.List[v1.Image]], error) {
			x, err := s.scopedOrAll(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			return &answerOf[v1.List[v1.Image]]{Body: v1.List[v1.Image]{Items: each(x.images(), x.image)}}, nil
		})
	get(api, route{"getImage", "/v1/images/{name}", tagImage, "Get an image", "The image that this name stands for in the tenant: its own, or else the one that is open to all."},
		func(ctx context.Context, in *struct {
			NameParam
			TenantParams
			ReadParams
		}) (*answerOf[v1.Image], error) {
			x, err := s.one(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			i, ok := x.imageNamed(in.Name)
			if !ok {
				return nil, notFound("there is no image %q", in.Name)
			}
			return &answerOf[v1.Image]{Body: x.image(i)}, nil
		})
	change(api, http.MethodPost, route{"addImage", "/v1/images", tagImage, "Add an image", "Enters a file that lies on the hosts into the catalogue. The file is looked at, not copied. With the parameter tenant it belongs to that tenant, and no other one sees it."},
		http.StatusCreated, v1.ImageSpec{},
		func(ctx context.Context, in *struct {
			TenantParams
			CallParams
			JSONBody
		}) (*imageAnswer, error) {
			if err := in.unversioned(); err != nil {
				return nil, err
			}
			x, err := s.one(ctx, in.TenantParams, ReadParams{})
			if err != nil {
				return nil, err
			}
			call, err := x.call(in.CallParams, "")
			if err != nil {
				return nil, err
			}
			spec, err := body[v1.ImageSpec](in.JSONBody)
			if err != nil {
				return nil, err
			}
			named(ctx, x.full(spec.Name))
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			img, replayed, err := s.cluster.AddImage(bounded, state.Image{Name: x.full(spec.Name), Kind: state.ImageKind(spec.Kind), File: spec.File,
				Size: int64(spec.Size), Initrd: x.imageIn(spec.Initrd), Cmdline: spec.Cmdline}, call)
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			out := &imageAnswer{Status: http.StatusCreated, Body: image(img)}
			if call.DryRun || replayed {
				out.Status = http.StatusOK
			}
			return out, nil
		})
	change(api, http.MethodDelete, route{"deleteImage", "/v1/images/{name}", tagImage, "Delete an image", "Takes it out of the catalogue; the file stays. One that a virtual cluster uses is refused (409)."},
		http.StatusNoContent, nil,
		func(ctx context.Context, in *struct {
			NameParam
			TenantParams
			CallParams
		}) (*struct{}, error) {
			if err := in.unversioned(); err != nil {
				return nil, err
			}
			x, err := s.one(ctx, in.TenantParams, ReadParams{})
			if err != nil {
				return nil, err
			}
			call, err := x.call(in.CallParams, "")
			if err != nil {
				return nil, err
			}
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			if err := s.cluster.DeleteImage(bounded, x.full(in.Name), call); err != nil {
				return nil, s.fail(ctx, err)
			}
			return nil, nil
		})
}
