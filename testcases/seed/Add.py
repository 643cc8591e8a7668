def main(params):
    return {"result": params["x"] + params["y"]}
