package state

import "fmt"

// Tenant is the tenant that an image belongs to. Those of DefaultTenant are open to all tenants.
func (i Image) Tenant() string {
	tenant, _ := SplitName(i.Name)
	return tenant
}

// ImageFor returns the image of that full name if what a tenant owns may name it: its own, or one that is open to all.
func (s *Snapshot) ImageFor(tenant, name string) (Image, bool) {
	img, ok := s.Image(name)
	if of := img.Tenant(); !ok || of != DefaultTenant && of != tenant {
		return Image{}, false
	}
	return img, true
}

// CheckImagePut says why an image that is not in the catalogue cannot be put into it; nil if it can.
func (s *Snapshot) CheckImagePut(img Image) error {
	tenant := img.Tenant()
	if _, ok := s.ImageFor(tenant, img.Initrd); img.Initrd != "" && !ok {
		return fmt.Errorf("image %s: initrd image %s: %w", img.Name, img.Initrd, ErrNotFound)
	}
	if tenant == DefaultTenant {
		return nil
	}
	if of, ok := s.Tenant(tenant); !ok {
		return fmt.Errorf("image %s: tenant %s: %w", img.Name, tenant, ErrNotFound)
	} else if of.Suspended {
		return fmt.Errorf("image %s: tenant %s is %w", img.Name, tenant, ErrSuspended)
	}
	more := Use{}
	addImageUse(more, &img)
	if err := s.checkUse(tenant, s.UseOf(tenant), more); err != nil {
		return fmt.Errorf("image %s: %w", img.Name, err)
	}
	return nil
}

// addImageUse counts an image of a tenant. Those of the default one are the cluster's, which all may use.
func addImageUse(use Use, img *Image) {
	use[QuotaImages]++
	use[QuotaDisk] += float64(img.Size)
}

// eachImageOf calls f with the images that a tenant owns, none for the default one.
func (s *Snapshot) eachImageOf(tenant string, f func(*Image)) {
	if tenant == DefaultTenant {
		return
	}
	each(s, func(img *Image) bool { f(img); return true }, tImages, "id_prefix", tenant+tenantSeparator)
}
