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
	get(api, route{"listImages", "/v1/images", tagImage, "List images", "The image catalogue by name. VC files name its entries; they never have paths."},
		func(ctx context.Context, in *struct{ ReadParams }) (*answerOf[v1.List[v1.Image]], error) {
			v, err := s.viewOfAny(ctx, in.Consistency)
			if err != nil {
				return nil, err
			}
			return &answerOf[v1.List[v1.Image]]{Body: v1.List[v1.Image]{Items: each(v.Images(), imageFor(principalOf(ctx)))}}, nil
		})
	get(api, route{"getImage", "/v1/images/{name}", tagImage, "Get an image", "One image of the catalogue."},
		func(ctx context.Context, in *struct {
			NameParam
			ReadParams
		}) (*answerOf[v1.Image], error) {
			v, err := s.viewOfAny(ctx, in.Consistency)
			if err != nil {
				return nil, err
			}
			i, ok := v.Image(in.Name)
			if !ok {
				return nil, notFound("there is no image %q", in.Name)
			}
			return &answerOf[v1.Image]{Body: imageFor(principalOf(ctx))(i)}, nil
		})
	change(api, http.MethodPost, route{"addImage", "/v1/images", tagImage, "Add an image", "Enters a file that lies on the hosts into the catalogue. The file is looked at, not copied."},
		http.StatusCreated, v1.ImageSpec{},
		func(ctx context.Context, in *struct {
			CallParams
			JSONBody
		}) (*imageAnswer, error) {
			if err := in.unversioned(); err != nil {
				return nil, err
			}
			call, err := in.call()
			if err != nil {
				return nil, err
			}
			spec, err := body[v1.ImageSpec](in.JSONBody)
			if err != nil {
				return nil, err
			}
			named(ctx, spec.Name)
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			img, replayed, err := s.cluster.AddImage(bounded, state.Image{Name: spec.Name, Kind: state.ImageKind(spec.Kind), File: spec.File,
				Size: int64(spec.Size), Initrd: spec.Initrd, Cmdline: spec.Cmdline}, call)
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
			CallParams
		}) (*struct{}, error) {
			if err := in.unversioned(); err != nil {
				return nil, err
			}
			call, err := in.call()
			if err != nil {
				return nil, err
			}
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			if err := s.cluster.DeleteImage(bounded, in.Name, call); err != nil {
				return nil, s.fail(ctx, err)
			}
			return nil, nil
		})
}
