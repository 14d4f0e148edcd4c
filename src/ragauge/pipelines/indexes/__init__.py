"""Index types, one file each: `indexes/ivf_pq.py` is the type `ivf_pq`, chosen by an index's key
`type`.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, GetJsonSchemaHandler, SerializeAsAny
from pydantic_core import CoreSchema, core_schema

from ragauge import registry
from ragauge.errors import SettingError, unknown
from ragauge.pipelines.indexes.base.recipe import DEFAULT_TYPE, IndexRecipe

__all__ = ["DEFAULT_TYPE", "AnyIndexRecipe", "IndexRecipe", "recipe_class", "recipe_of"]


def recipe_class(name: str) -> type[IndexRecipe]:
    """The recipe of an index type. Raises UserError with the choices if there is no such type."""
    return registry.component("index", name, IndexRecipe)


def recipe_of(manifest: Mapping[str, Any]) -> IndexRecipe:
    """The recipe that a merged index was made with, from its manifest; manifests without a type are
    of IVF-PQ.
    """
    made_from = manifest["made_from"]
    recipe = recipe_class(made_from.get("type", DEFAULT_TYPE))
    known = {key: made_from[key] for key in recipe.model_fields if key in made_from}
    known["shards"] = len(made_from["embeddings"])  # the key itself holds the shards' identities
    if recipe.NPROBE_KEY:
        known[recipe.NPROBE_KEY] = manifest[recipe.NPROBE_KEY]
    return recipe.model_validate(known)


def _of_its_type(data: Any) -> Any:
    """Validate a mapping as the recipe of the type that it names."""
    if not isinstance(data, dict):
        return data
    name = data.get("type", DEFAULT_TYPE)
    known = registry.names("index")
    if name not in known:
        raise SettingError("type", str(unknown("index type", name, known)))
    return recipe_class(name).model_validate(data)


class _AnyOf:
    """JSON schema: one of the existing recipes."""

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        schemas = [recipe_class(name).__pydantic_core_schema__ for name in registry.usable("index")]
        return handler(core_schema.union_schema(list(schemas)))


AnyIndexRecipe = Annotated[SerializeAsAny[IndexRecipe], BeforeValidator(_of_its_type), _AnyOf()]
