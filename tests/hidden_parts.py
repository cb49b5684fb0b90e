"""Hides inner parts of numba from our kernels while they are
imported; numba itself goes on with them.
"""

IMPORT_WITHOUT = '''
import importlib, sys, types

def import_without(*parts):
    """Import the decorators of kernels where each `module:name` or `module:Class.name` is gone."""
    before = dict(sys.modules)
    for part in parts:
        module_name, _, path = part.partition(":")
        module = importlib.import_module(module_name)
        before[module_name] = before.get(module_name, module)
        copied = types.ModuleType(module_name)
        vars(copied).update(vars(module))
        name, _, member = path.partition(".")
        whole = vars(copied).pop(name, None)
        if member:
            names = [n for n in dir(whole) if n != member and not n.startswith("__")]
            kept = {n: getattr(whole, n) for n in names}
            setattr(copied, name, type(name, (), kept))
        sys.modules[module_name] = copied
    import xylem_store.compiled.decorators
    sys.modules.update({name: before[name] for name, _ in map(lambda part: part.split(":"), parts)})
'''
