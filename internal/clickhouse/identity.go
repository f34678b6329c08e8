package clickhouse

import (
	"github.com/ClickHouse/ch-go/proto"

	"github.com/gpumeter/gpumeter/schema"
)

// identityColumns are the columns of usage_identity.
type identityColumns struct {
	input proto.Input

	tenant, source textColumn
	told           proto.ColDateTime
	id, unit       proto.ColStr
	payload        proto.ColFixedStr16
	unitHash       proto.ColUInt64
	start, end     *proto.ColDateTime64
	position       positionColumns
}

func (c *identityColumns) init() {
	c.start, c.end = new(proto.ColDateTime64).WithPrecision(3), new(proto.ColDateTime64).WithPrecision(3)
	c.input = append(proto.Input{
		{Name: "tenant", Data: &c.tenant}, {Name: "told", Data: &c.told}, {Name: "source", Data: &c.source}, {Name: "id", Data: &c.id},
		{Name: "payload", Data: &c.payload}, {Name: "unit_hash", Data: &c.unitHash}, {Name: "unit", Data: &c.unit},
		{Name: "start", Data: c.start}, {Name: "end", Data: c.end},
	}, c.position.init()...)
}

func (c *identityColumns) add(at *schema.Position, u *schema.Usage, payload schema.Hash) {
	c.tenant.Append(at.Tenant)
	c.told.AppendRaw(proto.DateTime(schema.ToldMs(u.ID) / 1000))
	c.source.Append(u.Source)
	c.id.Append(u.ID)
	c.payload = append(c.payload, payload)
	c.unitHash.Append(schema.UnitHash(u.Unit))
	c.unit.Append(u.Unit)
	c.start.AppendRaw(proto.DateTime64(u.StartMs))
	c.end.AppendRaw(proto.DateTime64(u.EndMs))
	c.position.add(at)
}

// correctionColumns are the columns of the table correction.
type correctionColumns struct {
	input proto.Input

	tenant, source, role, bySource, action             textColumn
	targetSource, replacementSource, replacementType   textColumn
	told                                               proto.ColDateTime
	id, byID, targetID, replacementID, actor, reasonOf proto.ColStr
	byPayload                                          proto.ColFixedStr16
	hash                                               proto.ColUInt64
	position                                           positionColumns
}

func (c *correctionColumns) init() {
	c.input = append(proto.Input{
		{Name: "tenant", Data: &c.tenant}, {Name: "told", Data: &c.told}, {Name: "source", Data: &c.source}, {Name: "id", Data: &c.id},
		{Name: "role", Data: &c.role}, {Name: "by_source", Data: &c.bySource}, {Name: "by_id", Data: &c.byID}, {Name: "by_payload", Data: &c.byPayload},
		{Name: "identity_hash", Data: &c.hash}, {Name: "action", Data: &c.action},
		{Name: "target_source", Data: &c.targetSource}, {Name: "target_id", Data: &c.targetID},
		{Name: "replacement_source", Data: &c.replacementSource}, {Name: "replacement_id", Data: &c.replacementID},
		{Name: "replacement_type", Data: &c.replacementType}, {Name: "actor", Data: &c.actor}, {Name: "reason", Data: &c.reasonOf},
	}, c.position.init()...)
}

// Roles of an identity in a correction.
const (
	roleTarget      = "target"
	roleReplacement = "replacement"
	roleSelf        = "self"
)

// add makes one row for each identity that the correction bears on.
func (c *correctionColumns) add(at *schema.Position, e *schema.Correction, payload schema.Hash) {
	target := schema.Identity{Source: e.CorrectsSource, ID: e.CorrectsID}
	var replacement schema.Identity
	var kind string
	if e.Replacement != nil {
		replacement, kind = e.Replacement.Header().Identity(), e.Replacement.Type()
	}
	row := func(role string, about schema.Identity) {
		c.tenant.Append(at.Tenant)
		c.told.AppendRaw(proto.DateTime(schema.ToldMs(about.ID) / 1000))
		c.source.Append(about.Source)
		c.id.Append(about.ID)
		c.role.Append(role)
		c.bySource.Append(e.Source)
		c.byID.Append(e.ID)
		c.byPayload = append(c.byPayload, payload)
		c.hash.Append(schema.IdentityHash(about))
		c.action.Append(e.Action)
		c.targetSource.Append(target.Source)
		c.targetID.Append(target.ID)
		c.replacementSource.Append(replacement.Source)
		c.replacementID.Append(replacement.ID)
		c.replacementType.Append(kind)
		c.actor.Append(e.Actor)
		c.reasonOf.Append(e.Reason)
		c.position.add(at)
	}
	row(roleTarget, target)
	row(roleSelf, e.Identity())
	if e.Replacement != nil {
		row(roleReplacement, replacement)
	}
}
