package state

// SeenAmiss are the ids of VCs that who applies has at hand otherwise than they are.
func (s *Store) SeenAmiss() (ids []string) {
	if s.seenIn != s.db {
		return nil
	}
	for id, vc := range s.seen {
		if row, _ := s.Snapshot().SeeVC(id); row != vc {
			ids = append(ids, id)
		}
	}
	return ids
}
